"""The report of a comparison, and its plots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.model import Comparison, PointFailure, Reason
from launchscope.parser import read_comparison
from launchscope.report import render
from launchscope.report.document import Plot, Series
from launchscope.report.plot import drawing_of, text_plot
from tests.report import comparisons

COMPARISONS = {
    "comparison": comparisons.comparison,
    "rehearsed": comparisons.rehearsed,
    "ladder": comparisons.ladder,
    "bucketed": comparisons.bucketed,
}


def lines_of(plot: Plot) -> list[str]:
    return ["".join(sign.sign for sign in line).rstrip() for line in text_plot(plot, 60)]


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_a_saved_comparison_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    made: Comparison = COMPARISONS[name]()
    content = render(made, "json")
    assert isinstance(content, bytes)
    path = tmp_path / "c.json"
    path.write_bytes(content)
    again = read_comparison(path)
    assert json.loads(render(again, "json")) == json.loads(content)
    assert render(again, "terminal") == render(made, "terminal")


def test_a_plot_shows_every_point_at_its_size() -> None:
    curves = (Series("eager", ((8, 10), (32, 10))), Series("replay", ((8, 1), (32, 10))))
    lines = lines_of(Plot("ms", curves))
    assert sum(line.count("●") for line in lines[:-1]) == 1  # the other end is both
    assert sum(line.count("◐") for line in lines[:-1]) == 1
    assert sum(line.count("○") for line in lines[:-1]) == 1
    assert lines[-2].split() == ["8", "32"]


def test_equal_times_can_be_plotted() -> None:
    assert lines_of(Plot("ms", (Series("eager", ((8, 2.0), (16, 2.0))),)))


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
    made = comparisons.ladder()
    rungs = (
        made.ladders[0].rungs[0],
        replace(made.ladders[0].rungs[2], failure=PointFailure(Reason("interrupted"))),
    )
    text = render(replace(made, ladders=(replace(made.ladders[0], rungs=rungs),)), "markdown")
    assert isinstance(text, str)
    assert "compile: interrupted" in text


def test_text_and_drawing_mark_the_crossover_alike() -> None:
    series = (Series("eager", ((2, 4.0), (8, 9.0))), Series("replay", ((2, 1.0), (8, 9.0))))
    plot = Plot("ms", series, (3.46, "crossover, about 3.5"))
    mark = drawing_of(plot).mark
    assert mark is not None
    assert mark.label in lines_of(plot)[-1]
    assert all("┊" in line or "·" in line for line in lines_of(plot)[:13])
