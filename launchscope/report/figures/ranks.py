"""The figure of Ranks: an iteration of each."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.model import Ranks
from launchscope.report.figures import Figure, Parts, stack_figure

_MOST_STACKED = 32  # ranks


def of_ranks(ranks: Ranks) -> Iterator[Figure]:
    bars: list[tuple[str, Parts, float]] = []
    for row in ranks.rows:
        if not row.iteration_ms:
            continue
        exposed = row.exposed_communication_ms
        own = row.own_ms if row.own_ms is not None else row.iteration_ms - (exposed or 0.0)
        parts = [("busy", "own time", own), ("sync", "waiting in collectives", exposed)]
        name = row.name if row.rank is None else f"rank {row.rank}"
        bars.append((name, parts, row.iteration_ms))
    if len(bars) > 1 and len(ranks.rows) <= _MOST_STACKED:
        yield stack_figure(
            f"An iteration of each {'rank' if ranks.kind == 'ranks' else 'file'}", bars
        )
