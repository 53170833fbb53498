"""A Plot as text, with one sign per point, and as a drawing to scale. Both axes are logarithmic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from launchscope.report.document import Plot, Series

_LINES = 13
_SIGNS = "●○▲△"
_BOTH = "◐"


@dataclass(frozen=True)
class Sign:
    """Part of a line; `series` is the index of its curve, None for the frame."""

    sign: str
    series: int | None = None


def text_plot(plot: Plot, width: int) -> list[list[Sign]]:
    """The lines of the plot, at most `width` wide, with axes, a legend and the mark as a column."""
    xs, ys = _coordinates(plot)
    steps = _ticks(min(ys), max(ys))
    label = max(len(_number(tick)) for tick in steps)
    columns = max(20, min(72, width - label - 3))
    across = _scale(xs[0], xs[-1], 1, columns - 2)
    down = _scale(min(steps[0], min(ys)), max(steps[-1], max(ys)), _LINES - 1, 0)

    def column(x: float) -> int:
        return round(across(x))

    def row(y: float) -> int:
        return round(down(y))

    at = {row(tick): _number(tick) for tick in steps if 0 <= row(tick) < _LINES}
    lines = [
        [Sign(at.get(index, "").rjust(label) + " │"), *signs]
        for index, signs in enumerate(_grid(plot, columns, column, row))
    ]
    lines.append([Sign(" " * label + " └" + "─" * columns)])
    lines.append([Sign(" " * (label + 2) + _x_labels(xs, column, columns))])
    legend = [Sign(" " * (label + 2))]
    for index, curve in enumerate(plot.series):
        legend += [Sign(_SIGNS[index % 4], index), Sign(f" {curve.name}   ")]
    if len(plot.series) > 1:
        legend.append(Sign(f"{_BOTH} both   "))
    if plot.mark is not None:
        legend.append(Sign(f"┊ {plot.mark[1]}"))
    return [*lines, legend]


def _grid(
    plot: Plot, columns: int, column: Callable[[float], int], row: Callable[[float], int]
) -> list[list[Sign]]:
    """The mark, dots between the points, and the points on top."""
    grid = [[Sign(" ") for _ in range(columns)] for _ in range(_LINES)]
    if plot.mark is not None:
        for line in grid:
            line[column(plot.mark[0])] = Sign("┊")
    for index, curve in enumerate(plot.series):
        for (x0, y0), (x1, y1) in pairwise(curve.points):
            for c in range(column(x0) + 1, column(x1)):
                share = (c - column(x0)) / (column(x1) - column(x0))
                line = grid[row(y0 * (y1 / y0) ** share)]
                if line[c].series is None:
                    line[c] = Sign("·", index)
    taken: set[tuple[int, int]] = set()
    for index, curve in enumerate(plot.series):
        for x, y in curve.points:
            at = (row(y), column(x))
            sign = _BOTH if at in taken else _SIGNS[index % 4]
            grid[at[0]][at[1]] = Sign(sign, index)
            taken.add(at)
    return grid


def _coordinates(plot: Plot) -> tuple[list[float], list[float]]:
    """All x in order, and all y."""
    xs = sorted({x for curve in plot.series for x, _ in curve.points})
    return xs, [y for curve in plot.series for _, y in curve.points]


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """Values from `low` to `high`, logarithmic, as positions from `first` to `last`."""
    span = log10(high / low) or 1.0
    return lambda value: first + (last - first) * log10(value / low) / span


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten around the values."""
    found = [
        factor * 10.0**power
        for power in range(floor(log10(low)) - 1, ceil(log10(high)) + 1)
        for factor in (1, 2, 5)
    ]
    first = max(i for i, tick in enumerate(found) if tick <= low * 1.001)
    last = min(i for i, tick in enumerate(found) if tick >= high * 0.999)
    return found[first : last + 1]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _x_labels(xs: Sequence[float], column: Callable[[float], int], columns: int) -> str:
    """The x values under their columns; a value that would touch its neighbor is left out."""
    line = [" "] * (columns + 8)
    free = 0
    for x in xs:
        text = _number(x)
        start = max(0, column(x) - len(text) // 2)
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line).rstrip()


# ---------------------------------------------------------------------------- the drawing

_WIDTH, _HEIGHT = 720.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 700.0, 14.0, 286.0


@dataclass(frozen=True)
class Tick:
    """A label and its position on the axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Drawing:
    """In pixels from the upper left corner; `mark` is a vertical line with its label."""

    title: str
    curves: tuple[Series, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    mark: Tick | None
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def drawing_of(plot: Plot) -> Drawing:
    """The plot to scale; it holds a point at least."""
    xs, ys = _coordinates(plot)
    steps = _ticks(min(ys), max(ys))
    to_x = _scale(xs[0], xs[-1], _LEFT + 14, _RIGHT - 14)
    to_y = _scale(steps[0], steps[-1], _BOTTOM, _TOP)

    def across(x: float) -> float:
        return round(to_x(x), 1)

    def down(y: float) -> float:
        return round(to_y(y), 1)

    return Drawing(
        plot.title,
        tuple(
            Series(curve.name, tuple((across(x), down(y)) for x, y in curve.points))
            for curve in plot.series
        ),
        tuple(Tick(across(x), _number(x)) for x in xs),
        tuple(Tick(down(y), _number(y)) for y in steps),
        None if plot.mark is None else Tick(across(plot.mark[0]), plot.mark[1]),
    )
