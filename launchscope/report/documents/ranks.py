"""The report of several files: ranks, their differences and who is late; or a table of files."""

from __future__ import annotations

from collections.abc import Callable

from launchscope.model import Ranks, Recommendation
from launchscope.report import frames
from launchscope.report.document import (
    Cell,
    Column,
    Document,
    Section,
    Table,
    Tone,
    notes,
    sections,
    words,
)
from launchscope.report.documents.labels import VERDICTS
from launchscope.wording import count, ms, pct, plural

_OWN = (
    "own: the iteration without exposed collectives. While one is exposed, no other kernel of the "
    "rank runs, and the rank may be waiting for the others · waiting: GPU idle, waiting for "
    "launches"
)
_SKEWS = {
    "own_ms": "own time",
    "iteration_ms": "iteration",
    "busy_ms": "GPU busy",
    "communication_ms": "collectives",
    "exposed_communication_ms": "exposed collectives",
    "launch_overhead_ms": "GPU idle, waiting for launches",
    "launches_per_step": "launches per step",
    "device_ops_per_step": "device operations per step",
}


def document(value: Ranks, top: int) -> Document:
    """One row per file, the slowest rank strong; nothing is cut at `top`."""
    is_ranks = value.kind == "ranks"
    return Document(
        badge=value.kind.upper(),
        tone="calm",
        title=plural(len(value.rows), "file"),
        headline=value.headline,
        context=(_OWN,) if is_ranks else (),
        sections=sections(*rank_sections(value), notes(value.notes)),
    )


def rank_sections(value: Ranks) -> tuple[Section, ...]:
    """The tables of ranks or files."""
    is_ranks = value.kind == "ranks"
    return (
        Section("Rank by rank" if is_ranks else "Files", (_rows(value),)),
        Section("Differences between the ranks", (_skews(value),)),
    )


def _rows(value: Ranks) -> Table:
    rows, is_ranks = frames.ranks(value), value.kind == "ranks"
    # Live ranks reported their own results; the others were read from files.
    live = {row.name for row in value.rows if row.name == f"rank {row.rank}"}

    def verdict(answer: Recommendation | None, problem: str | None, name: str) -> Cell | str | None:
        if problem is not None:
            return Cell("not measured" if name in live else "not read", "bad")
        return None if answer is None else VERDICTS[answer][0]

    figures = [
        _figure("iteration", "iteration_ms", ms),
        _figure("GPU busy", "busy_ms", ms),
        _figure("launches", "launches_per_step", count),
        _figure("device ops", "device_ops_per_step", count),
        _figure("waiting", "launch_overhead_pct", pct),
        _figure("removable", "removable_pct", pct),
    ]
    if is_ranks:
        figures.insert(0, _figure("own", "own_ms", ms))
        figures.insert(3, _figure("collectives", "communication_ms", ms))
    figures = [column for column in figures if rows[column.sources[0]].notna().any()]
    if rows[["recommendation", "problem"]].notna().to_numpy().any():
        sources = ("recommendation", "problem", "name")
        figures.append(words("verdict", sources, verdict, fit="wrap"))
    file = words("file", "name", fit="wrap")
    if is_ranks:
        shown = figures if len(live) == len(rows) else [*figures, file]
        return Table.of(rows, _figure("rank", "rank", count, key=True), *shown)
    if all(row.target is None for row in value.rows):
        return Table.of(rows, words("file", "name", key=True, fit="wrap"), *figures)
    workload = words("workload", "target", key=True, fit="cut_start")
    return Table.of(rows, workload, *figures, file)


def _figure(
    heading: str, source: str, text: Callable[[float], str], *, key: bool = False
) -> Column:
    """A column in which the slowest rank is strong."""

    def cell(value: float | None, is_slowest: bool) -> Cell | None:
        tone: Tone = "strong" if is_slowest else "plain"
        return None if value is None else Cell(text(value), tone)

    return Column(heading, (source, "slowest"), cell, key=key)


def _skews(value: Ranks) -> Table:
    def figure(number: float, key: str) -> str:
        return ms(number) if key.endswith("_ms") else count(number)

    return Table.of(
        value.skews,
        words("", "key", lambda key: _SKEWS.get(key, key), key=True),
        Column("least", ("low", "key"), figure),
        Column("median", ("middle", "key"), figure),
        Column("most", ("high", "key"), figure),
        Column("difference", "pct", pct),
    )
