"""What the report of several files says: ranks and how far they are apart, or workloads."""

from __future__ import annotations

from launchscope.model import Ranks
from launchscope.model.ranks import RankRow, Skew
from launchscope.report.document import (
    MISSING,
    Cell,
    Column,
    Document,
    Section,
    Table,
    items,
    sections,
)
from launchscope.report.documents.labels import VERDICTS
from launchscope.wording import count, ms, pct, plural

_OWN = "own: the iteration without NCCL kernels, in which a rank also waits for the others"
_SKEWS = {
    "own_ms": "own time",
    "iteration_ms": "iteration",
    "busy_ms": "GPU busy",
    "communication_ms": "collectives",
    "launches_per_step": "launches per step",
}


def document(value: Ranks, top: int) -> Document:
    """One row per file, the slowest rank strong; nothing in it is cut at `top`."""
    ranks = value.kind == "ranks"
    return Document(
        badge=value.kind.upper(),
        tone="calm",
        title=plural(len(value.rows), "file"),
        headline=value.headline,
        basis="",
        context=(_OWN,) if ranks else (),
        sections=sections(
            Section("Rank by rank" if ranks else "Workloads", (_rows(value),)),
            _skews(value),
            items("Notes", value.notes),
        ),
    )


def _rows(value: Ranks) -> Table:
    """Ranks with their time outside of collectives; workloads by their commands."""
    ranks = value.kind == "ranks"
    first = (
        Column("rank", key=True) if ranks else Column("workload", "left", key=True, fit="cut_start")
    )
    names = ("own", "iteration", "GPU busy", "collectives", "launches", "exposed", "removable")
    columns = (
        first,
        *map(Column, names),
        Column("verdict", "left", fit="wrap"),
        Column("file", "left", fit="wrap"),
    )
    rows = tuple(_row(row, ranks=ranks, strong=row.name == value.slowest) for row in value.rows)
    if ranks:
        return Table(columns, rows)
    kept = [0, 2, 3, *range(5, len(columns))]
    return Table(tuple(columns[i] for i in kept), tuple(tuple(r[i] for i in kept) for r in rows))


def _row(row: RankRow, *, ranks: bool, strong: bool) -> tuple[Cell, ...]:
    def cell(text: str | None) -> Cell:
        return MISSING if text is None else Cell(text, "strong" if strong else "plain")

    rank = None if row.rank is None else str(row.rank)
    durations = (row.own_ms, row.iteration_ms, row.busy_ms, row.communication_ms)
    shares = (row.launch_overhead_pct, row.removable_pct)
    verdict = None if row.recommendation is None else VERDICTS[row.recommendation][0]
    return (
        cell(rank if ranks else row.target),
        *(cell(None if value is None else ms(value)) for value in durations),
        cell(None if row.launches_per_step is None else count(row.launches_per_step)),
        *(cell(None if value is None else pct(value)) for value in shares),
        cell(verdict) if row.problem is None else Cell("not read", "bad"),
        cell(row.name),
    )


def _skews(value: Ranks) -> Section | None:
    if not value.skews:
        return None
    headings = ("least", "median", "most", "difference")
    columns = (Column("", "left", key=True), *map(Column, headings))
    table = Table(columns, tuple(map(_skew, value.skews)))
    return Section("Differences between the ranks", (table,))


def _skew(skew: Skew) -> tuple[Cell, ...]:
    text = count if skew.key == "launches_per_step" else ms
    values = (skew.low, skew.middle, skew.high)
    apart = MISSING if skew.pct is None else Cell(pct(skew.pct))
    return (Cell(_SKEWS[skew.key]), *(Cell(text(value)) for value in values), apart)
