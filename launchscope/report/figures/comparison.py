"""The figures of a Comparison: curves by batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from launchscope.model import Comparison, Crossover, Point, Profile
from launchscope.report.documents.comparison import is_rehearsed
from launchscope.report.figures.figure import Figure, Row
from launchscope.wording import figures, ms

Bounds = tuple[float, float]


def of_comparison(comparison: Comparison) -> Iterator[Figure]:
    """The iteration by batch size."""
    if is_rehearsed(comparison):
        return
    points = [point for point in comparison.points if point.batch_size]
    points.sort(key=lambda point: point.batch_size or 0)
    series = [
        _series("eager", "iteration_ms", points, _eager_bounds),
        _series("replay", "replayed_iteration_ms", points, _replay_bounds),
    ]
    if max(len(one["points"]) for one in series) >= 2:
        title = "Milliseconds per iteration by batch size"
        crossover = next(iter(comparison.crossovers), None)
        yield _lines(title, [one for one in series if one["points"]], crossover)


def _series(
    name: str, key: str, points: Sequence[Point], bounds: Callable[[Profile], Bounds | None]
) -> Row:
    """A curve; without bounds if a point of it has none."""
    known = [point for point in points if (point.value(key) or 0.0) > 0]
    values = [(float(point.batch_size or 0), point.value(key) or 0.0) for point in known]
    ends = [bounds(point.profile) for point in known if point.profile is not None]
    texts = [ms(y) for _, y in values]
    shown = () if None in ends else ends
    return {"name": name, "points": values, "bounds": shown, "texts": texts}


def _eager_bounds(profile: Profile) -> Bounds | None:
    """Half of the interquartile range around the iteration."""
    metric = profile.metrics["iteration_ms"]
    half, value = (metric.iqr or 0.0) / 2, metric.value or 0.0
    return value - half, value + half


def _replay_bounds(profile: Profile) -> Bounds | None:
    """What the bounds of the gain leave of the iteration."""
    iteration, removed = profile.value("iteration_ms"), profile.metrics.get("removable_pct")
    if iteration is None or removed is None or removed.low is None or removed.high is None:
        return None
    return iteration * (1 - removed.high / 100), iteration * (1 - removed.low / 100)


def _lines(title: str, series: Sequence[Mapping[str, Any]], crossover: Crossover | None) -> Figure:
    mark = _mark(crossover, [x for one in series for x, _ in one["points"]])
    data = {"series": series, "mark": mark, "x": "batch size", "y": "ms per iteration"}
    text = "; ".join(
        f"{one['name']}: " + ", ".join(f"{ms(y)} at {figures(x)}" for x, y in one["points"])
        for one in series
    )
    note = "Both axes are logarithmic."
    if any(one["bounds"] for one in series):
        note += " The bars span the spread or the bounds of the projection."
    return Figure("lines", title, data, text, note)


def _mark(crossover: Crossover | None, sizes: Sequence[float]) -> tuple[float, str] | None:
    """The crossover, with the batch size as the headline says it; None if it is not between sizes
    that are shown."""
    size = None if crossover is None else crossover.batch_size
    if size is None or not min(sizes) <= size <= max(sizes):
        return None
    text = f"{size:.0f}" if size >= 10 else f"{size:.1f}".removesuffix(".0")
    return size, f"crossover, about {text}"
