from __future__ import annotations

import pytest

from launchscope.analysis.comparison.points import crossover
from launchscope.model import Crossover, Point, Target
from launchscope.rules.verdict.crossover import crossover_sentence
from tests.rules.profiles import profile

TARGET = Target("script", "train.py")


def point(batch_size: int, removable: float | None, exposed: float | None = None) -> Point:
    figures = {"removable_pct": removable, "launch_overhead_pct": exposed}
    return Point(TARGET, batch_size, profile(metrics=figures))


def found(*points: Point) -> Crossover:
    return crossover(points, 15.0)


def test_the_crossover_lies_on_the_line_over_the_logarithm() -> None:
    result = found(point(16, 25.0, 25.0), point(64, 5.0, 5.0))
    assert result.batch_size == pytest.approx(32)  # half-way from 25 to 5, half-way in log2
    assert crossover_sentence(result) == (
        "The gain falls below 15 % at a batch size of about 32: it is 25 % at 16 and 5.0 % at 64."
    )


def test_without_exposed_overhead_on_either_side_the_share_removed_is_taken() -> None:
    result = found(point(16, 25.0, 12.0), point(64, 5.0, 5.0))
    assert result.batch_size == pytest.approx(32)


@pytest.mark.parametrize("gains", [(80.0, 30.0), (4.0, 1.0), (4.0, 40.0), (40.0, 4.0, 40.0)])
def test_a_gain_that_does_not_fall_below_the_threshold_once_has_no_crossover(
    gains: tuple[float, ...],
) -> None:
    result = found(*(point(8 * 2**row, gain) for row, gain in enumerate(gains)))
    assert result.batch_size is None
    assert crossover_sentence(result).startswith("There is no one size at which the gain falls")


def test_points_without_a_gain_are_left_out() -> None:
    lost = Point(TARGET, 256)
    assert found(point(8, 40.0), point(16, 4.0), lost).batch_size is not None
    assert found(point(8, 40.0), point(16, None), lost).gains == ((8, 40.0),)


def test_a_metric_that_was_not_measured_is_not_zero() -> None:
    assert "is not known" in crossover_sentence(found(point(8, None), point(16, None)))
