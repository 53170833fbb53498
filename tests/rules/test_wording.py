"""Numbers in sentences."""

from __future__ import annotations

import pytest

from launchscope.model import Metric
from launchscope.report.text import numbers as fmt
from launchscope.rules import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.014, "9.01"), (0.0, "0"), (1234.5, "1,234"), (0.0123, "0.0123"), (-2.5, "-2.50"),
        (9.996, "10.0"), (99.96, "100"), (0.09996, "0.100"),
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
        (-0.03, "0.0 %"), (-0.24, "-0.2 %"),
    ],
)  # fmt: skip
def test_shares(value: float, text: str) -> None:
    assert wording.pct(value) == text


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("/env/lib/python3.12/site-packages/timm/optim/lion.py:7", "timm/optim/lion.py:7"),
        (r"C:\env\Lib\site-packages\timm\optim\lion.py:7", r"timm\optim\lion.py:7"),
        ("/usr/lib/python3/dist-packages/x.py:1", "x.py:1"),
        ("src/train.py:12", "src/train.py:12"),
    ],
)
def test_a_line_of_a_library_is_named_without_the_folder_it_is_installed_in(
    where: str, text: str
) -> None:
    assert wording.place(where) == text


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
    ("value", "said"), [(14.7, "14.7 %"), (14.96, "14.96 %"), (9.3, "9.3 %"), (15.0, "15 %")]
)
def test_a_share_close_to_a_limit_is_told_apart_from_it(value: float, said: str) -> None:
    assert wording.pct_beside(value, 15.0) == said


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.00x"), (9.994, "9.99x"), (9.996, "10.0x"), (123.4, "123x")]
)
def test_a_ratio_reads_the_same_in_a_sentence_and_in_a_table(value: float, text: str) -> None:
    assert wording.times(value) == fmt.ratio(value) == text


@pytest.mark.parametrize("value", [0.03, -0.03, 0.0, 6.14, 61.4])
def test_a_share_reads_the_same_in_a_sentence_and_in_a_table(value: float) -> None:
    assert wording.pct(value) == fmt.percent(value)


def test_memory_reads_the_same_in_a_sentence_and_in_a_table() -> None:
    assert wording.mib(1046.0) == fmt.with_unit(Metric(1046.0, "MiB")) == "1.02 GiB"
