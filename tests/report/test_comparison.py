"""The formats of a comparison against their golden files; written like test_golden's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.model import Comparison, PointFailure
from launchscope.parser import read_comparison
from launchscope.report import all_reporters, render
from launchscope.report.comparison.content import Plot
from launchscope.report.comparison.curves import drawing
from launchscope.report.comparison.plot import Series, drawn, text_of
from tests.report import comparisons

GOLDEN = Path(__file__).parent / "golden"
COMPARISONS = {
    "comparison": comparisons.comparison,
    "rehearsed": comparisons.rehearsed,
    "ladder": comparisons.ladder,
    "bucketed": comparisons.bucketed,
}
CASES = [
    ("comparison", "terminal", "comparison.80.txt", {"width": 80}),
    ("comparison", "terminal", "comparison.120.txt", {"width": 120}),
    ("comparison", "terminal", "comparison.ascii.txt", {"width": 80, "unicode": False}),
    ("comparison", "terminal", "comparison.color.txt", {"width": 80, "color": True}),
    ("rehearsed", "terminal", "comparison.rehearsed.80.txt", {"width": 80}),
    ("ladder", "terminal", "comparison.ladder.80.txt", {"width": 80}),
    ("ladder", "terminal", "comparison.ladder.120.txt", {"width": 120}),
    ("bucketed", "terminal", "comparison.bucketed.80.txt", {"width": 80}),
    ("comparison", "markdown", "comparison.markdown.txt", {}),
    ("ladder", "markdown", "comparison.ladder.markdown.txt", {}),
    ("bucketed", "markdown", "comparison.bucketed.markdown.txt", {}),
    ("comparison", "html", "comparison.html", {}),
    ("ladder", "html", "comparison.ladder.html", {}),
    ("bucketed", "html", "comparison.bucketed.html", {}),
    ("bucketed", "json", "comparison.bucketed.json", {}),
]


@pytest.mark.parametrize(
    ("name", "format_name", "file", "options"), CASES, ids=[c[2] for c in CASES]
)
def test_report_equals_its_golden_file(
    name: str, format_name: str, file: str, options: dict[str, object]
) -> None:
    rendered = render(COMPARISONS[name](), format_name, **options)
    data = rendered.encode() if isinstance(rendered, str) else rendered
    golden = GOLDEN / file
    if not golden.exists():
        golden.write_bytes(data)
        pytest.fail(f"{file} did not exist and was written: look at it, then run again")
    assert data.decode() == golden.read_text(encoding="utf-8")


def test_every_format_has_a_golden_file() -> None:
    assert {one.name for one in all_reporters() if Comparison in one.renders} == {
        case[1] for case in CASES
    }


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = render(COMPARISONS[name](), "terminal", width=width)
    assert isinstance(text, str)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_a_saved_comparison_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    made: Comparison = COMPARISONS[name]()
    content = render(made, "json")
    assert isinstance(content, bytes)
    path = tmp_path / "c.json"
    path.write_bytes(content)
    again = read_comparison(path)
    assert json.loads(render(again, "json")) == json.loads(content)
    assert render(again, "terminal", width=80) == render(made, "terminal", width=80)


def test_a_plot_shows_every_point_at_its_size() -> None:
    curves = (Series("eager", ((8, 10), (32, 10))), Series("replay", ((8, 1), (32, 10))))
    lines = text_of(drawn(curves, 60)).splitlines()
    assert sum(line.count("●") for line in lines[:-1]) == 1  # the other end is both
    assert sum(line.count("◐") for line in lines[:-1]) == 1
    assert sum(line.count("○") for line in lines[:-1]) == 1
    assert lines[-2].split() == ["8", "32"]


def test_equal_times_can_be_plotted() -> None:
    assert text_of(drawn((Series("eager", ((8, 2.0), (16, 2.0))),), 60))


def test_points_that_all_failed_on_a_gpu_are_not_told_to_lack_one() -> None:
    made = comparisons.comparison()
    failed = PointFailure("out of GPU memory, before it was measured", 1, out_of_memory=True)
    points = tuple(replace(point, profile=None, failure=failed) for point in made.points)
    assert made.environment.device is not None
    text = render(replace(made, points=points, crossovers=()), "terminal", width=80)
    assert isinstance(text, str)
    assert "out of memory" in text
    assert "on a GPU" not in text


def test_a_way_that_failed_after_it_was_timed_says_so() -> None:
    made = comparisons.ladder()
    rungs = (
        made.ladders[0].rungs[0],
        replace(made.ladders[0].rungs[2], failure=PointFailure("lost")),
    )
    text = render(replace(made, ladders=(replace(made.ladders[0], rungs=rungs),)), "markdown")
    assert isinstance(text, str)
    assert "compile: lost" in text


def test_a_small_crossover_has_the_same_size_in_text_and_drawing() -> None:
    series = (Series("eager", ((2, 4.0), (8, 9.0))), Series("replay", ((2, 1.0), (8, 9.0))))
    mark = drawing(Plot("ms", series, 3.46)).mark
    assert mark is not None
    assert mark.label == "crossover, about 3.5"
    assert mark.label in text_of(drawn(series, 60, mark=3.46))
