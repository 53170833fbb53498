"""Figures by spread; what was not measured is said, never shown as 0."""

from __future__ import annotations

import pytest

from launchscope.model import Metric
from launchscope.report.text import numbers as fmt


def metric(value: float | None, iqr: float = 0.0, unit: str = "ms") -> Metric:
    """A metric whose samples have that interquartile range."""
    if value is None:
        return Metric(None, unit)
    return Metric(
        value, unit, False, (value - iqr, value - iqr / 2, value, value + iqr / 2, value + iqr)
    )


@pytest.mark.parametrize(
    ("value", "iqr", "text"),
    [
        (9.0137, 0.042, "9.01 ± 0.04 ms"),
        (9.0137, 0.42, "9.01 ± 0.42 ms"),
        (9.0137, 0.0096, "9.01 ± 0.01 ms"),
        (523.4, 12.0, "523 ± 12 ms"),
        (0.012345, 0.0002, "0.0123 ± 0.0002 ms"),
        (9.0, 20.0, "9.00 ± 20 ms"),
        (9.0137, 0.0, "9.01 ms"),
        (9.0137, 0.0000001, "9.0137 ms"),
    ],
)
def test_the_median_is_written_to_the_place_of_its_spread(
    value: float, iqr: float, text: str
) -> None:
    assert fmt.with_unit(metric(value, iqr)) == text


def test_without_enough_samples_for_a_spread_three_figures_are_shown() -> None:
    assert fmt.with_unit(Metric.of_samples([9.0137, 9.2], "ms")) == "9.11 ms"


@pytest.mark.parametrize("unknown", [None, Metric(None, "ms"), Metric(None, "1", exact=True)])
def test_unknown_is_said(unknown: Metric | None) -> None:
    assert fmt.with_unit(unknown) == "not measured"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Metric(1234, "1", exact=True), "1,234"),
        (Metric(555.0, "1", samples=(555, 556, 555, 554, 553)), "555"),
        (Metric(2.5, "1", exact=True), "2.50"),
        (Metric(0, "ms"), "0 ms"),
        (Metric(23.3, "%"), "23 %"),
        (Metric(0.01, "%"), "< 0.1 %"),
        (Metric(2.866, "x"), "2.87x"),
        (Metric(142.0, "MiB"), "142 MiB"),
    ],
)
def test_counts_shares_and_ratios(given: Metric, text: str) -> None:
    assert fmt.with_unit(given) == text


def test_parts_are_written_to_the_place_of_their_whole() -> None:
    assert [fmt.like(part, 9.39) for part in (2.95, 0.38, 0.0551)] == ["2.95", "0.38", "0.06"]


@pytest.mark.parametrize(
    ("value", "text"), [(2.866, "2.87x"), (12.34, "12.3x"), (None, "not measured")]
)
def test_ratios(value: float | None, text: str) -> None:
    assert fmt.ratio(value) == text
