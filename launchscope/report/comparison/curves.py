"""Curves as a drawing to scale: where its lines, points and labels lie, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log10

from launchscope.report.comparison.content import Plot
from launchscope.report.comparison.plot import marked, number, ticks

_WIDTH, _HEIGHT = 720.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 700.0, 14.0, 286.0


@dataclass(frozen=True)
class Tick:
    """A label, and where on its axis it stands."""

    at: float
    label: str


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Drawing:
    """In pixels from the upper left corner; `mark` is a vertical line with its label."""

    title: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    mark: Tick | None
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def drawing(plot: Plot) -> Drawing:
    """The plot to scale; it holds a point at least."""
    xs = sorted({x for curve in plot.series for x, _ in curve.points})
    ys = [y for curve in plot.series for _, y in curve.points]
    steps = ticks(min(ys), max(ys))
    across = _scale(xs[0], xs[-1], _LEFT + 14, _RIGHT - 14)
    down = _scale(steps[0], steps[-1], _BOTTOM, _TOP)
    mark = None
    if plot.mark is not None and xs[0] <= plot.mark <= xs[-1]:
        mark = Tick(across(plot.mark), marked(plot.mark))
    return Drawing(
        plot.title,
        tuple(
            Curve(curve.name, tuple((across(x), down(y)) for x, y in curve.points))
            for curve in plot.series
        ),
        tuple(Tick(across(x), number(x)) for x in xs),
        tuple(Tick(down(y), number(y)) for y in steps),
        mark,
    )


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """Values from `low` to `high`, logarithmic, as pixels from `first` to `last`."""
    span = log10(high / low) or 1.0
    return lambda value: round(first + (last - first) * log10(value / low) / span, 1)
