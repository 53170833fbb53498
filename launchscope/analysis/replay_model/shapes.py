"""The gain of one graph for each of the input shapes that come back."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np

from launchscope.analysis.replay_model.gain import Projection
from launchscope.analysis.timing import StepTimes
from launchscope.model import ShapeBursts, ShapeReplay, ShapesResult


def shape_replays(result: ShapesResult | None) -> tuple[ShapeReplay, ...]:
    """Each shape whose replay was measured, the most frequent one first."""
    if result is None:
        return ()
    ordered = sorted(result.shapes, key=lambda shape: -shape.steps)
    found = (_timed(shape, 100.0 * shape.steps / max(result.steps, 1)) for shape in ordered)
    return tuple(shape for shape in found if shape is not None)


def padded_replay(result: ShapesResult | None, times: StepTimes) -> ShapeReplay | None:
    """Every step with its inputs padded to one size; eager is the mean step of all sizes."""
    if result is None or result.padded is None or not times.step_ms:
        return None
    found, mean = _timed(result.padded, 100.0), float(np.mean(times.step))
    if found is None:
        return None
    replay = [median(burst) for burst in result.padded.replay_bursts if burst]
    least, most = mean - max(replay), mean - min(replay)
    return replace(found, eager_ms=mean, least_saved_ms=least, most_saved_ms=most)


def _timed(shape: ShapeBursts, share_pct: float) -> ShapeReplay | None:
    eager, replay = (
        [median(burst) for burst in bursts if burst]
        for bursts in (shape.eager_bursts, shape.replay_bursts)
    )
    if not eager or not replay:
        return None
    bounds = (max(0.0, min(eager) - max(replay)), max(eager) - min(replay))
    return ShapeReplay(shape.inputs, share_pct, median(eager), median(replay), *bounds)


def project_shapes(times: StepTimes, shapes: tuple[ShapeReplay, ...]) -> Projection | None:
    """The iteration where each of these shapes has a graph, weighted by how often it occurs. The
    steps of other shapes stay eager. None if no iteration was timed."""
    iteration, step = times.iteration_ms, times.step_ms
    if not shapes or not iteration or not step:
        return None
    mean = float(np.mean(times.iteration))  # shapes that are rare and slow count as well

    def share(saved_ms: list[float]) -> float:
        weighted = (shape.share_pct * saved for shape, saved in zip(shapes, saved_ms))
        return min(sum(weighted) / mean, 100.0)

    removed = share([shape.eager_ms - shape.replay_ms for shape in shapes])
    low = share([shape.least_saved_ms for shape in shapes])
    high = share([shape.most_saved_ms for shape in shapes])
    return Projection(
        iteration,
        iteration * (1 - removed / 100),
        low_pct=low,
        high_pct=high,
        source="measured",
        step_pct=min(removed * mean / float(np.mean(times.step)), 100.0),
    )
