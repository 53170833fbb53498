"""The report of a comparison, and its plots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.model import Comparison, PointFailure, Reason
from launchscope.parser import read_saved
from launchscope.report import render
from launchscope.report.document import Plot
from launchscope.report.plot import text_plot
from tests.report import comparisons

COMPARISONS = {
    "comparison": comparisons.comparison,
    "rehearsed": comparisons.rehearsed,
    "strategies": comparisons.strategies,
    "bucketed": comparisons.bucketed,
}


def lines_of(plot: Plot) -> list[str]:
    return [line.plain.rstrip() for line in text_plot(plot, 60)]


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_a_saved_comparison_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    made: Comparison = COMPARISONS[name]()
    content = render(made, "json")
    assert isinstance(content, bytes)
    path = tmp_path / "c.json"
    path.write_bytes(content)
    again = read_saved(path, Comparison)
    assert json.loads(render(again, "json")) == json.loads(content)
    assert render(again, "terminal") == render(made, "terminal")


def test_a_plot_shows_every_point_at_its_size() -> None:
    curves = {"eager": ((8, 10), (32, 10)), "replay": ((8, 1), (32, 10))}
    lines = lines_of(Plot("ms", curves))
    assert sum(line.count("●") for line in lines[:-1]) == 1  # the other end is both
    assert sum(line.count("◐") for line in lines[:-1]) == 1
    assert sum(line.count("○") for line in lines[:-1]) == 1
    assert lines[-2].split() == ["8", "32"]


def test_equal_times_can_be_plotted() -> None:
    assert lines_of(Plot("ms", {"eager": ((8, 2.0), (16, 2.0))}))


def test_points_that_all_failed_on_a_gpu_do_not_claim_that_there_was_none() -> None:
    made = comparisons.comparison()
    failed = PointFailure(Reason("script_out_of_memory"), 1)
    points = tuple(replace(point, profile=None, failure=failed) for point in made.points)
    assert made.environment.device is not None
    text = render(replace(made, points=points, crossovers=()), "terminal")
    assert isinstance(text, str)
    assert "out of memory" in text
    assert "on a GPU" not in text


def test_a_way_that_failed_after_it_was_timed_says_so() -> None:
    made = comparisons.strategies()
    tried = (
        made.strategies[0].tried[0],
        replace(made.strategies[0].tried[2], failure=PointFailure(Reason("interrupted"))),
    )
    text = render(
        replace(
            made,
            strategies=(replace(made.strategies[0], tried=tried),),
        ),
        "markdown",
    )
    assert isinstance(text, str)
    assert "compile: interrupted" in text


def test_text_marks_the_crossover_in_every_line_and_in_the_legend() -> None:
    curves = {"eager": ((2, 4.0), (8, 9.0)), "replay": ((2, 1.0), (8, 9.0))}
    lines = lines_of(Plot("ms", curves, (3.46, "crossover, about 3.5")))
    assert lines[-1].endswith("┊ crossover, about 3.5")
    assert all("┊" in line or "·" in line for line in lines[:13])
