"""A Plot over logarithmic axes: where its values are on a drawing, and the plot as text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, floor, log10

from rich.text import Text

from launchscope.frozen import dataclass
from launchscope.report.document import Plot

_LINES = 13
_CURVES = (("●", "red"), ("○", "green"), ("▲", "yellow"), ("△", "cyan"))
_BOTH = "◐"


@dataclass(frozen=True)
class Axes:
    """`across` and `up` place values between 0 and 1 of the drawing; the ticks are values."""

    across: Callable[[float], float]
    up: Callable[[float], float]
    x_ticks: list[float]
    y_ticks: list[float]


def axes_of(plot: Plot, *, with_bounds: bool = False) -> Axes:
    """Every x, and 1, 2 and 5 times powers of ten around the y values, as ticks."""
    xs = sorted({x for curve in plot.curves.values() for x, _ in curve})
    ys = [y for curve in plot.curves.values() for _, y in curve]
    if with_bounds and plot.bounds:
        ys += [y for curve in plot.bounds.values() for bounds in curve for y in bounds if y > 0]
    low, high = min(ys), max(ys)
    powers = range(floor(log10(low)) - 1, ceil(log10(high)) + 1)
    steps = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max(i for i, tick in enumerate(steps) if tick <= low * 1.001)
    last = min(i for i, tick in enumerate(steps) if tick >= high * 0.999)
    ticks = steps[first : last + 1]
    return Axes(_scale(xs[0], xs[-1]), _scale(ticks[0], ticks[-1]), xs, ticks)


def _scale(low: float, high: float) -> Callable[[float], float]:
    span = log10(high / low) or 1.0
    return lambda value: log10(value / low) / span


def tick_label(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def text_plot(plot: Plot, width: int) -> list[Text]:
    """The lines of the plot, at most `width` wide, with axes, a legend and the mark as a column."""
    axes = axes_of(plot)
    margin = max(len(tick_label(tick)) for tick in axes.y_ticks)
    columns = max(20, min(72, width - margin - 3))

    def column(x: float) -> int:
        return round(1 + (columns - 3) * axes.across(x))

    def row(y: float) -> int:
        return round((_LINES - 1) * (1 - axes.up(y)))

    labels = {row(tick): tick_label(tick) for tick in axes.y_ticks}
    lines = [
        [(labels.get(index, "").rjust(margin) + " │", ""), *signs]
        for index, signs in enumerate(_grid(plot, columns, column, row))
    ]
    lines.append([(" " * margin + " └" + "─" * columns, "")])
    lines.append([(" " * (margin + 2) + _x_labels(axes.x_ticks, column, columns), "")])
    legend = [(" " * (margin + 2), "")]
    for name, sign in zip(plot.curves, _CURVES):
        legend += [sign, (f" {name}   ", "")]
    if len(plot.curves) > 1:
        legend.append((f"{_BOTH} both   ", ""))
    if plot.mark is not None:
        legend.append((f"┊ {plot.mark[1]}", ""))
    return [Text.assemble(*line, no_wrap=True, overflow="ignore") for line in (*lines, legend)]


def _grid(
    plot: Plot, columns: int, column: Callable[[float], int], row: Callable[[float], int]
) -> list[list[tuple[str, str]]]:
    """Signs with their styles: the mark, dots between the points, and the points on top."""
    grid = [[(" ", "")] * columns for _ in range(_LINES)]
    if plot.mark is not None:
        for line in grid:
            line[column(plot.mark[0])] = ("┊", "")
    for curve, (_, style) in zip(plot.curves.values(), _CURVES):
        for (x0, y0), (x1, y1) in pairwise(curve):
            for c in range(column(x0) + 1, column(x1)):
                share = (c - column(x0)) / (column(x1) - column(x0))
                line = grid[row(y0 * (y1 / y0) ** share)]
                if not line[c][1]:  # the first curve stays visible where two meet
                    line[c] = ("·", style)
    taken: set[tuple[int, int]] = set()
    for curve, (sign, style) in zip(plot.curves.values(), _CURVES):
        for x, y in curve:
            at = (row(y), column(x))
            grid[at[0]][at[1]] = (_BOTH if at in taken else sign, style)
            taken.add(at)
    return grid


def _x_labels(xs: list[float], column: Callable[[float], int], columns: int) -> str:
    """The x values under their columns; a value that would touch its neighbor is left out."""
    line = [" "] * (columns + 8)
    free = 0
    for x in xs:
        text = tick_label(x)
        start = max(0, column(x) - len(text) // 2)
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line).rstrip()
