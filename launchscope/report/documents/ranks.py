"""The report of several files: ranks, their differences and who is late; or a table of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launchscope.model import Ranks
from launchscope.model.ranks import RankRow, Skew
from launchscope.report.document import Cell, Column, Document, Section, Table, notes, sections
from launchscope.report.documents.labels import VERDICTS
from launchscope.wording import count, ms, pct, plural

_OWN = (
    "own: the iteration without exposed collectives. While one is exposed, no other kernel of the "
    "rank runs, and the rank may be waiting for the others"
)
_ALL_RANKS = 64
_SKEWS = {
    "own_ms": "own time",
    "iteration_ms": "iteration",
    "busy_ms": "GPU busy",
    "communication_ms": "collectives",
    "exposed_communication_ms": "exposed collectives",
    "launch_overhead_ms": "launch overhead",
    "launches_per_step": "launches per step",
    "device_ops_per_step": "device operations per step",
}


def document(value: Ranks, top: int) -> Document:
    """One row per file, the slowest rank strong; collectives are cut at `top`, and so are more
    ranks than a person reads, the slowest first."""
    is_ranks = value.kind == "ranks"
    return Document(
        badge=value.kind.upper(),
        tone="calm",
        title=plural(len(value.rows), "file"),
        headline=value.headline,
        context=(_OWN,) if is_ranks else (),
        sections=sections(*rank_sections(value, top), notes(value.notes)),
    )


def rank_sections(value: Ranks, top: int) -> tuple[Section, ...]:
    """The tables of ranks or files."""
    is_ranks = value.kind == "ranks"
    return (
        Section("Rank by rank" if is_ranks else "Files", (_rows(value, top),)),
        Section("Differences between the ranks", (_skews(value),)),
        Section("The last to arrive", (_arrivals(value, top), _longest(value, top))),
    )


def _rows(value: Ranks, top: int) -> Table:
    def figure(
        heading: str, get: Callable[[RankRow], float | None], text: Callable[[float], str]
    ) -> tuple[Column, Callable[[RankRow], Cell | str | None]]:
        def cell(row: RankRow) -> Cell | None:
            found, strong = get(row), row.name == value.slowest
            return None if found is None else Cell(text(found), "strong" if strong else "plain")

        return Column(heading, key=heading == "rank"), cell

    columns = [
        figure("iteration", lambda row: row.iteration_ms, ms),
        figure("GPU busy", lambda row: row.busy_ms, ms),
        figure("launches", lambda row: row.launches_per_step, count),
        figure("exposed", lambda row: row.launch_overhead_pct, pct),
        figure("removable", lambda row: row.removable_pct, pct),
        (Column("verdict", "left", fit="wrap"), _verdict),
        (Column("file", "left", fit="wrap"), lambda row: row.name),
    ]
    if any(row.device_ops_per_step is not None for row in value.rows):
        columns.insert(3, figure("device ops", lambda row: row.device_ops_per_step, count))
    if value.kind == "files":
        if all(row.target is None for row in value.rows):
            return Table.of(value.rows, columns.pop(), *columns)
        name = Column("workload", "left", key=True, fit="cut_start")
        return Table.of(value.rows, (name, lambda row: row.target), *columns)
    columns.insert(2, figure("collectives", lambda row: row.communication_ms, ms))
    columns.insert(0, figure("own", lambda row: row.own_ms, ms))
    if all(map(_is_live, value.rows)):
        columns.pop()
    columns = [each for each in columns if any(each[1](row) is not None for row in value.rows)]
    rank = figure("rank", lambda row: row.rank, count)
    rows, most = _most(value.rows, lambda row: -(row.own_ms or 0.0), top)
    return Table.of(rows, rank, *columns, top=most)


def _is_live(row: RankRow) -> bool:
    """Whether the row is of a rank that reported its own results, not of a file."""
    return row.name == f"rank {row.rank}"


def _most(
    rows: Sequence[RankRow], order: Callable[[RankRow], float], top: int
) -> tuple[Sequence[RankRow], int | None]:
    """All rows as they are; if these are too many, in this order and the number to show."""
    return (rows, None) if len(rows) <= _ALL_RANKS else (sorted(rows, key=order), top)


def _verdict(row: RankRow) -> Cell | str | None:
    if row.problem is not None:
        return Cell("not measured" if _is_live(row) else "not read", "bad")
    return None if row.recommendation is None else VERDICTS[row.recommendation][0]


def _skews(value: Ranks) -> Table:
    def figure(skew: Skew, number: float) -> str:
        return ms(number) if skew.key.endswith("_ms") else count(number)

    return Table.of(
        value.skews,
        (Column("", "left", key=True), lambda skew: _SKEWS.get(skew.key, skew.key)),
        (Column("least"), lambda skew: figure(skew, skew.low)),
        (Column("median"), lambda skew: figure(skew, skew.middle)),
        (Column("most"), lambda skew: figure(skew, skew.high)),
        (Column("difference"), lambda skew: None if skew.pct is None else pct(skew.pct)),
    )


def _arrivals(value: Ranks, top: int) -> Table:
    """Per rank, at how many collectives it was late and what that cost the others."""
    known = [row for row in value.rows if row.last_arrivals is not None]
    rows, most = _most(known, lambda row: -(row.waited_for_ms or 0.0), top)
    return Table.of(
        rows,
        (Column("rank", key=True), lambda row: _rank(row)),
        (Column("last at"), lambda row: plural(row.last_arrivals or 0, "collective")),
        (Column("another rank waited"), lambda row: ms(row.waited_for_ms or 0.0)),
        top=most,
    )


def _longest(value: Ranks, top: int) -> Table:
    """The collectives with the longest waits."""
    names = {row.name: _rank(row) for row in value.rows}
    late = [(arrival, arrival.last) for arrival in value.arrivals if arrival.last is not None]
    return Table.of(
        sorted(late, key=lambda found: -found[0].waited_ms),
        (Column("collective", key=True), lambda found: f"#{found[0].place + 1}"),
        (Column("group", "left", fit="wrap"), lambda found: found[0].group or ""),
        (Column("last"), lambda found: names.get(found[1], found[1])),
        (Column("another rank waited"), lambda found: ms(found[0].waited_ms)),
        (Column("kernel", "left", fit="wrap"), lambda found: found[0].name),
        top=top,
    )


def _rank(row: RankRow) -> str:
    return row.name if row.rank is None else str(row.rank)
