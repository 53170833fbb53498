"""The figures of a Comparison: curves by batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launchscope.model import Comparison, Crossover, Point
from launchscope.report.documents.comparison import is_rehearsed
from launchscope.report.figures import Figure, Row
from launchscope.wording import figures, ms


def of_comparison(comparison: Comparison) -> Iterator[Figure]:
    """The iteration by batch size."""
    if is_rehearsed(comparison):
        return
    points = [point for point in comparison.points if point.batch_size]
    points.sort(key=lambda point: point.batch_size or 0)
    series = [
        _series("eager", "iteration_ms", points),
        _series("replay", "replayed_iteration_ms", points),
    ]
    if max(len(one["points"]) for one in series) >= 2:
        title = "Milliseconds per iteration by batch size"
        yield _lines(title, [one for one in series if one["points"]], comparison.crossover)


def _series(name: str, key: str, points: Sequence[Point]) -> Row:
    known = [point for point in points if (point.value(key) or 0.0) > 0]
    values = [(float(point.batch_size or 0), point.value(key) or 0.0) for point in known]
    return {"name": name, "points": values, "texts": [ms(y) for _, y in values]}


def _lines(title: str, series: Sequence[Mapping[str, Any]], crossover: Crossover | None) -> Figure:
    mark = _mark(crossover, [x for one in series for x, _ in one["points"]])
    data = {"series": series, "mark": mark, "x": "batch size", "y": "ms per iteration"}
    text = "; ".join(
        f"{one['name']}: " + ", ".join(f"{ms(y)} at {figures(x)}" for x, y in one["points"])
        for one in series
    )
    return Figure("lines", title, data, text, "Both axes are logarithmic.")


def _mark(crossover: Crossover | None, sizes: Sequence[float]) -> tuple[float, str] | None:
    """The crossover, with the batch size as the headline says it; None if it is not between sizes
    that are shown."""
    size = None if crossover is None else crossover.batch_size
    if size is None or not min(sizes) <= size <= max(sizes):
        return None
    text = f"{size:.0f}" if size >= 10 else f"{size:.1f}".removesuffix(".0")
    return size, f"crossover, about {text}"
