"""Numbers, counts and lists as people read them."""

from __future__ import annotations

import pytest

from launchscope import wording
from launchscope.model import Metric, SourceLine


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.014, "9.01"), (0.0, "0"), (1234.5, "1,234"), (0.0123, "0.0123"), (-2.5, "-2.50"),
        (9.996, "10.0"), (99.96, "100"), (0.09996, "0.100"), (4e-16, "0"), (-4e-16, "0"),
    ],
)  # fmt: skip
def test_three_figures(value: float, text: str) -> None:
    assert wording.figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(9.014, "9.01 ms"), (0.0404, "40.4 us"), (12_345.0, "12.3 s"), (0, "0 ms")]
)
def test_durations_choose_their_unit(value: float, text: str) -> None:
    assert wording.ms(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (61.4, "61 %"), (9.96, "10 %"), (0.24, "0.2 %"), (0.03, "< 0.1 %"), (0.0, "0.0 %"),
        (-0.03, "0.0 %"), (-0.24, "-0.2 %"), (1000, "1000 %"), (1e13, "> 1,000 %"),
        (-1e13, "< -1,000 %"),
    ],
)  # fmt: skip
def test_shares(value: float, text: str) -> None:
    assert wording.pct(value) == text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("/env/lib/python3.12/site-packages/timm/optim/lion.py", "timm/optim/lion.py:7"),
        (r"C:\env\Lib\site-packages\timm\optim\lion.py", r"timm\optim\lion.py:7"),
        ("/usr/lib/python3/dist-packages/x.py", "x.py:7"),
        ("src/train.py", "src/train.py:7"),
    ],
)
def test_a_line_of_a_library_is_named_without_the_folder_it_is_installed_in(
    file: str, text: str
) -> None:
    assert wording.place(SourceLine(file, 7)) == text


def test_plurals_and_lists() -> None:
    assert wording.plural(1, "step") == "1 step"
    assert wording.plural(1200, "launch") == "1,200 launches"
    assert wording.plural(1.5, "step") == "1.5 steps"
    assert wording.listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 bytes"), (2048, "2.00 KiB"), (3 * 2**20, "3.00 MiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert wording.size_of(size) == text


@pytest.mark.parametrize(
    ("value", "text"), [(14.7, "14.7 %"), (14.96, "14.96 %"), (9.3, "9.3 %"), (15.0, "15 %")]
)
def test_a_share_close_to_a_limit_has_enough_decimals_to_differ(value: float, text: str) -> None:
    assert wording.pct_beside(value, 15.0) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00x"), (9.994, "9.99x"), (9.996, "10.0x"), (123.4, "123x"), (1000, "1,000x"),
        (1000.1, "> 1,000x"), (0.004, "< 0.01x"), (0.0, "0.00x"),
    ],
)  # fmt: skip
def test_ratios(value: float, text: str) -> None:
    assert wording.times(value) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (10.0, 11.2, "+12 %"), (10.0, 9.66, "-3.4 %"), (1.0, 1.0, "+0.0 %"), (0.0, 5.0, ""),
        (1.0, 11.0, "+1000 %"), (1.0, 11.1, "11.1x"), (1e-12, 0.146, "> 1,000x"),
        (-1.0, 50.0, "> 1,000 %"), (1.0, -50.0, "< -1,000 %"),
    ],
)  # fmt: skip
def test_changes(before: float, after: float, text: str) -> None:
    assert wording.change(before, after) == text


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
        (9.0137, 0.084, "9.01 ± 0.04 ms"),
        (9.0137, 0.84, "9.01 ± 0.42 ms"),
        (9.0137, 0.0192, "9.01 ± 0.01 ms"),
        (523.4, 24.0, "523 ± 12 ms"),
        (52_340.0, 2400.0, "52,300 ± 1,200 ms"),
        (0.012345, 0.0004, "0.0123 ± 0.0002 ms"),
        (9.0, 40.0, "9.00 ± 20.00 ms"),
        (9.0137, 0.0, "9.01 ms"),
        (9.0137, 0.0000001, "9.01 ms"),
    ],
)
def test_the_median_is_written_to_the_place_of_its_spread(
    value: float, iqr: float, text: str
) -> None:
    assert wording.with_unit(metric(value, iqr)) == text


def test_without_enough_samples_for_a_spread_three_figures_are_shown() -> None:
    assert wording.with_unit(Metric.of_samples([9.0137, 9.2], "ms")) == "9.11 ms"


@pytest.mark.parametrize("unknown", [None, Metric(None, "ms"), Metric(None, "1", exact=True)])
def test_unknown_is_not_measured(unknown: Metric | None) -> None:
    assert wording.with_unit(unknown) == "not measured"


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
    assert wording.with_unit(given) == text


@pytest.mark.parametrize(
    ("clause", "text"),
    [
        ("the trace holds no whole step", "The trace holds no whole step."),
        ("decode: 3 steps", "Decode: 3 steps."),
        ("Every point measured the same.", "Every point measured the same."),
        ("launchscope sees no forward", "launchscope sees no forward."),
        ("rank3.json: is damaged", "rank3.json: is damaged."),
        ("train.py is missing", "train.py is missing."),
        ("launch_share_pct: rose", "launch_share_pct: rose."),
        ("32 kernels", "32 kernels."),
    ],
)
def test_a_remark_is_written_as_a_sentence(clause: str, text: str) -> None:
    assert wording.sentence(clause) == text
