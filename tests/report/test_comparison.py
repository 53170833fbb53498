"""The report of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.model import Comparison, PointFailure, Reason
from launchscope.parser import read_saved
from launchscope.report import render
from tests.report import comparisons

COMPARISONS = {
    "comparison": comparisons.comparison,
    "rehearsed": comparisons.rehearsed,
    "strategies": comparisons.strategies,
}


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


def test_points_that_all_failed_on_a_gpu_do_not_claim_that_there_was_none() -> None:
    made = comparisons.comparison()
    failed = PointFailure(Reason("script_out_of_memory"), 1)
    points = tuple(replace(point, profile=None, failure=failed) for point in made.points)
    assert made.environment.device is not None
    text = render(replace(made, points=points, crossover=None), "terminal")
    assert isinstance(text, str)
    assert "out of memory" in text
    assert "on a GPU" not in text


def test_a_way_that_failed_after_it_was_timed_says_so() -> None:
    made = comparisons.strategies()
    tried = (
        made.strategies[0].tried[0],
        replace(made.strategies[0].tried[2], failure=PointFailure(Reason("interrupted"))),
    )
    text = render(replace(made, strategies=(replace(made.strategies[0], tried=tried),)), "markdown")
    assert isinstance(text, str)
    assert "compile: interrupted" in text
