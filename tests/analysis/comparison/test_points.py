from __future__ import annotations

import pytest

from launchscope.analysis.comparison.points import crossover, crossovers
from launchscope.model import Crossover, Metric, Point, Target
from launchscope.rules.verdict.crossover import crossover_sentence
from tests.rules.profiles import profile

TARGET = Target("script", "train.py")


def point(
    batch_size: int,
    removable: float | None,
    exposed: float | None = None,
    *,
    replayed: bool = True,
    **others: str,
) -> Point:
    figures = {"removable_pct": removable, "launch_overhead_pct": exposed}
    made = profile(metrics=figures if replayed else {**figures, "replay_ms": None})
    parameters = {"batch_size": str(batch_size), **others}
    return Point(parameters, TARGET, batch_size, made)


def found(*points: Point) -> Crossover:
    return crossover(points, 15.0)


def test_the_crossover_lies_on_the_line_over_the_logarithm() -> None:
    result = found(point(16, 25.0, 25.0), point(64, 5.0, 5.0))
    assert result.status == "between"
    assert result.batch_size == pytest.approx(32)  # half-way from 25 to 5, half-way in log2
    assert result.by == "exposed"
    assert result.confirmed


def test_without_exposed_overhead_on_either_side_the_share_removed_is_taken() -> None:
    result = found(point(16, 25.0, 12.0), point(64, 5.0, 5.0))
    assert (result.status, result.by) == ("between", "removable")
    assert result.batch_size == pytest.approx(32)


def test_the_neighbors_are_the_nearest_measured_sizes() -> None:
    result = found(*(point(n, share, share) for n, share in ((8, 80), (32, 40), (64, 9), (128, 1))))
    assert result.pays is not None
    assert result.pays_not is not None
    assert (result.pays.batch_size, result.pays_not.batch_size) == (32, 64)


def test_a_neighbor_without_a_measured_replay_does_not_confirm() -> None:
    result = found(point(16, 25.0, 25.0), point(64, 5.0, 5.0, replayed=False))
    assert not result.confirmed
    assert "not confirmed" in crossover_sentence(result)


def test_a_gain_above_the_threshold_at_every_size() -> None:
    result = found(point(8, 80.0), point(128, 30.0))
    assert result.status == "above"
    assert crossover_sentence(result) == (
        "The gain is at least 15 % at all measured sizes: 30 % at 128, the largest."
    )


def test_a_gain_below_the_threshold_at_every_size() -> None:
    result = found(point(8, 4.0), point(128, 1.0))
    assert result.status == "below"
    assert "below 15 % at all measured sizes: 4.0 % at 8, the smallest" in crossover_sentence(
        result
    )


def test_a_gain_that_rises_has_no_crossover() -> None:
    result = found(point(8, 4.0), point(128, 40.0))
    assert result.status == "rising"
    assert result.batch_size is None
    assert "rises with the batch size" in crossover_sentence(result)


def test_several_crossings_are_not_one() -> None:
    result = found(point(8, 40.0), point(16, 4.0), point(32, 40.0))
    assert result.status == "several"
    assert "more than once" in crossover_sentence(result)


def test_points_without_a_gain_are_left_out() -> None:
    lost = Point({"batch_size": "256"}, TARGET, 256)
    assert found(point(8, 40.0), point(16, 4.0), lost).status == "between"
    assert found(point(8, 40.0), point(16, None), lost).status == "unknown"


def test_every_combination_of_other_parameters_has_its_own() -> None:
    points = [
        point(size, share, share, width=width)
        for width, shares in (("64", (60, 5)), ("512", (50, 30)))
        for size, share in zip((8, 64), shares)
    ]
    narrow, wide = crossovers(points, 15.0)
    assert (narrow.parameters, narrow.status) == ({"width": "64"}, "between")
    assert (wide.parameters, wide.status) == ({"width": "512"}, "above")
    assert "with width 512" in crossover_sentence(wide)


def test_a_metric_that_was_not_measured_is_not_zero() -> None:
    assert Metric(None, "%").value is None
    assert found(point(8, None), point(16, None)).status == "unknown"
