"""The figures of Ranks: timelines, and an iteration of each."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from launchscope.model import Label, RankRow, Ranks
from launchscope.report.figures import Figure, Parts, stack_figure
from launchscope.report.figures.timeline import Drawn, timeline

_MOST_STACKED = 32  # ranks


def of_ranks(ranks: Ranks) -> Iterator[Figure]:
    if ranks.kind == "ranks":
        yield from _timelines(ranks)
    if len(ranks.rows) <= _MOST_STACKED:
        yield from _iterations_of_ranks(ranks)


def _timelines(ranks: Ranks) -> Iterator[Figure]:
    """The slowest rank above the one in the middle."""
    labels: list[Label] = []
    drawn: list[Drawn] = []
    rows = {row.name: row for row in ranks.rows}
    for found in ranks.timelines:
        if found.name not in rows:  # in a file that was edited
            continue
        first = len(labels)
        labels += found.labels
        lanes = tuple(
            replace(lane, label=tuple(first + label for label in lane.label))
            for lane in found.step.lanes
        )
        which = "slowest" if found.name == ranks.slowest else "in the middle"
        title = f"{_rank(rows[found.name])}, {which}"
        drawn.append(Drawn(replace(found.step, lanes=lanes), title))
    if drawn:
        heading = "Timelines of the slowest rank and of the one in the middle"
        yield timeline(heading, labels, drawn)


def _iterations_of_ranks(ranks: Ranks) -> Iterator[Figure]:
    bars: list[tuple[str, Parts, float]] = []
    for row in ranks.rows:
        if not row.iteration_ms:
            continue
        exposed = row.exposed_communication_ms
        own = row.own_ms if row.own_ms is not None else row.iteration_ms - (exposed or 0.0)
        parts = [("busy", "own time", own), ("sync", "waiting in collectives", exposed)]
        bars.append((_rank(row), parts, row.iteration_ms))
    if len(bars) > 1:
        yield stack_figure(
            f"An iteration of each {'rank' if ranks.kind == 'ranks' else 'file'}", bars
        )


def _rank(row: RankRow) -> str:
    return row.name if row.rank is None else f"rank {row.rank}"
