"""The figures of Ranks: a heat map by phase, timelines, and an iteration of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from launchscope.model import Label, RankRow, Ranks
from launchscope.report.figures.figure import Figure, Row, rows_figure, stacked
from launchscope.report.figures.timeline import Drawn, timeline
from launchscope.wording import ms

_LEAST_HEAT = 3  # ranks
_LEAST_SPREAD = 0.05  # of the largest value: differences below are noise, and stay pale
_MOST_STACKED = 32  # ranks; above that, the heat map alone shows them
_PHASES = {
    "own_ms": "own time",
    "exposed_communication_ms": "waiting in collectives",
    "busy_ms": "GPU busy",
    "waited_for_ms": "others waited for it",
}


def of_ranks(ranks: Ranks) -> Iterator[Figure]:
    if ranks.kind == "ranks":
        yield from _heat(ranks)
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


def _heat(ranks: Ranks) -> Iterator[Figure]:
    """Ranks by phase: the palest cell of a phase is its least value, the darkest its largest."""
    rows: list[Row] = []
    for key, name in _PHASES.items():
        values: list[float | None] = [getattr(row, key) for row in ranks.rows]
        known = [value for value in values if value is not None]
        if len(known) < _LEAST_HEAT or not max(known):
            continue
        low = min(known)
        span = max(max(known) - low, _LEAST_SPREAD * max(known))
        cells = [None if v is None else [(v - low) / span, ms(v)] for v in values]
        rows.append({"name": name, "cells": cells, "low": ms(low), "high": ms(max(known))})
    names = list(map(_rank, ranks.rows))
    yield from rows_figure("heat", "Ranks by phase", rows, "{name} {low} to {high}", names=names)


def _iterations_of_ranks(ranks: Ranks) -> Iterator[Figure]:
    rows: list[Row] = []
    for row in ranks.rows:
        if not row.iteration_ms:
            continue
        exposed = row.exposed_communication_ms
        own = row.own_ms if row.own_ms is not None else row.iteration_ms - (exposed or 0.0)
        parts = [("busy", "own time", own), ("sync", "waiting in collectives", exposed)]
        total = ms(row.iteration_ms)
        rows.append({"name": _rank(row), "parts": stacked(parts), "total": total})
    if len(rows) > 1:
        heading = f"An iteration of each {'rank' if ranks.kind == 'ranks' else 'file'}"
        yield from rows_figure("stack", heading, rows, "{name} {total}", unit="ms")


def _rank(row: RankRow) -> str:
    return row.name if row.rank is None else f"rank {row.rank}"
