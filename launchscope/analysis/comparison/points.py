"""What a comparison says of each point beyond its Profile, and of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launchscope.model import Point, Profile, TensorShape

# Of kernels the reports of a comparison show none, and its file keeps the longest.
KERNELS_KEPT = 20


def with_rates(point: Point) -> Point:
    """The point with its samples per second; batch size over iteration."""
    if point.profile is None:
        return point
    trimmed = trim(point.profile)
    return replace(
        point,
        profile=trimmed,
        samples_per_s=_rate(point, "iteration_ms"),
        replay_samples_per_s=_rate(point, "projected_iteration_ms"),
    )


def trim(profile: Profile) -> Profile:
    """The Profile with the kernels that take the most time only."""
    longest = sorted(profile.kernels, key=lambda kernel: -kernel.total_us)[:KERNELS_KEPT]
    return replace(profile, kernels=tuple(longest))


def _rate(point: Point, key: str) -> float | None:
    ms = point.value(key)
    if point.batch_size is None or ms is None or ms <= 0:
        return None
    return 1e3 * point.batch_size / ms


def same_work(points: Sequence[Point]) -> bool | None:
    """Whether steps of different batch sizes read inputs of the same shapes, so that the batch
    size made no difference. None where the shapes of fewer than two sizes are known."""
    seen: dict[int, frozenset[tuple[TensorShape, ...]]] = {}
    for point in points:
        if point.batch_size is None or point.profile is None:
            continue
        shapes = frozenset(signature.inputs for signature in point.profile.shapes.signatures)
        if shapes:
            seen[point.batch_size] = shapes
    if len(seen) < 2:
        return None
    return len(set(seen.values())) == 1
