"""Curves as text: both axes logarithmic, one sign per series, a line of dots between points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

HEIGHT = 13
_SIGNS = ("●", "○", "▲", "△")
_PLAIN_SIGNS = ("E", "R", "3", "4")
_BOTH = ("◐", "*")


@dataclass(frozen=True)
class Series:
    """A named curve: x above 0, ascending, and y above 0."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Cell:
    """A sign of the plot; `series` is the index of its curve, None for the frame."""

    sign: str
    series: int | None = None


def drawn(
    series: Sequence[Series], width: int, *, mark: float | None = None, unicode: bool = True
) -> list[list[Cell]]:
    """The lines of the plot, at most `width` wide, with axes, a legend and `mark` as a column.

    `series` hold two points at least between them.
    """
    xs = sorted({x for curve in series for x, _ in curve.points})
    ys = [y for curve in series for _, y in curve.points]
    steps = ticks(min(ys), max(ys))
    low, high = log10(min(steps[0], min(ys))), log10(max(steps[-1], max(ys)))
    high = high if high > low else low + 1
    label = max(len(number(tick)) for tick in steps)
    columns = max(20, min(72, width - label - 3))
    x_low, x_high = log10(xs[0]), log10(xs[-1])
    x_high = x_high if x_high > x_low else x_low + 1

    def column(x: float) -> int:
        return 1 + round((log10(x) - x_low) / (x_high - x_low) * (columns - 3))

    def row(y: float) -> int:
        return round((high - log10(y)) / (high - low) * (HEIGHT - 1))

    grid = [[Cell(" ") for _ in range(columns)] for _ in range(HEIGHT)]
    if mark is not None and xs[0] <= mark <= xs[-1]:
        for line in grid:
            line[column(mark)] = Cell("┊" if unicode else ":")
    for index, curve in enumerate(series):
        for (x0, y0), (x1, y1) in pairwise(curve.points):
            for c in range(column(x0) + 1, column(x1)):
                share = (c - column(x0)) / (column(x1) - column(x0))
                y = 10 ** (log10(y0) + share * (log10(y1) - log10(y0)))
                if grid[row(y)][c].sign in " ┊:":
                    grid[row(y)][c] = Cell("·" if unicode else ".", index)
    taken: set[tuple[int, int]] = set()
    for index, curve in enumerate(series):
        signs = _SIGNS if unicode else _PLAIN_SIGNS
        for x, y in curve.points:
            place = (row(y), column(x))
            sign = (_BOTH[0] if unicode else _BOTH[1]) if place in taken else signs[index % 4]
            grid[place[0]][place[1]] = Cell(sign, index)
            taken.add(place)
    at = {row(tick): number(tick) for tick in steps if 0 <= row(tick) < HEIGHT}
    bar, corner, rule = ("│", "└", "─") if unicode else ("|", "+", "-")
    lines = [
        [Cell(at.get(index, "").rjust(label) + " " + bar), *cells]
        for index, cells in enumerate(grid)
    ]
    lines.append([Cell(" " * label + " " + corner + rule * columns)])
    lines.append([Cell(" " * (label + 2) + _scale(xs, column, columns))])
    lines.append(_legend(series, label, mark if unicode or mark else None, unicode=unicode))
    return lines


def text_of(lines: list[list[Cell]]) -> str:
    return "\n".join("".join(cell.sign for cell in line).rstrip() for line in lines)


def _legend(
    series: Sequence[Series], label: int, mark: float | None, *, unicode: bool
) -> list[Cell]:
    cells = [Cell(" " * (label + 2))]
    signs = _SIGNS if unicode else _PLAIN_SIGNS
    for index, curve in enumerate(series):
        cells += [Cell(signs[index % 4], index), Cell(f" {curve.name}   ")]
    if len(series) > 1:
        cells.append(Cell(f"{_BOTH[0] if unicode else _BOTH[1]} both   "))
    if mark is not None:
        cells.append(Cell(f"{'┊' if unicode else ':'} {marked(mark)}"))
    return cells


def marked(size: float) -> str:
    """The label of the crossover, with the batch size as the headline says it."""
    said = f"{size:.0f}" if size >= 10 else f"{size:.1f}".removesuffix(".0")
    return f"crossover, about {said}"


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten around the values."""
    found = [
        factor * 10.0**power
        for power in range(floor(log10(low)) - 1, ceil(log10(high)) + 1)
        for factor in (1, 2, 5)
    ]
    first = max(i for i, tick in enumerate(found) if tick <= low * 1.001)
    last = min(i for i, tick in enumerate(found) if tick >= high * 0.999)
    return found[first : last + 1]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _scale(xs: Sequence[float], column: object, columns: int) -> str:
    """The x values under their columns; one that would run into its neighbour is left out."""
    assert callable(column)
    line = [" "] * (columns + 8)
    free = 0
    for x in xs:
        text = number(x)
        start = max(0, int(column(x)) - len(text) // 2)
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line).rstrip()
