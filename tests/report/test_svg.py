"""The picture for documents: what the page's timeline shows, in one small file without a script."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.errors import UsageError
from launchscope.model import Comparison, Metric, Profile
from launchscope.report import render
from launchscope.report.figures import CAUSES
from launchscope.report.svg import _palette, _patterns
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.report import comparisons
from tests.report.browser import browser, needs_browser
from tests.report.hostile import NASTY, endless, filled, harmless
from tests.report.others import traced
from tests.rules.profiles import rehearsal

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
SVG = "{http://www.w3.org/2000/svg}"
_BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h")
_LANE, _IDLE_LANE = 16, 28  # how high they are


def picture(value: Profile | Comparison) -> ET.Element:
    made = render(value, "svg")
    assert isinstance(made, str)
    return ET.fromstring(made)


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def bars(root: ET.Element, tone: str) -> list[tuple[float, float, float, float]]:
    """Left end, upper end, width and height of the bars of a tone, without that of the legend."""
    found = [
        (float(x), float(y), float(wide), float(tall))
        for path in root.iter(f"{SVG}path")
        if path.get("class") == f"t-{tone}"
        for x, y, wide, tall in _BAR.findall(path.get("d", ""))
    ]
    return found[:-1]


def area(found: list[tuple[float, float, float, float]]) -> float:
    return sum(wide * tall for _, _, wide, tall in found)


def scale(root: ET.Element) -> float:
    """Pixels per ns, by a copy of 0.1 ms in a lane."""
    return area(bars(root, "copy")) / 2 / _LANE / 100_000


def test_the_eager_step_is_above_the_replayed_one_at_the_same_scale() -> None:
    root = picture(traced())
    shown = texts(root)
    assert shown.index("Eager iteration") < shown.index("Replayed step")
    eager, replayed = (
        [bar for bar in bars(root, "copy") if (bar[1] < 300) == above] for above in (True, False)
    )
    assert area(eager) == pytest.approx(area(replayed), rel=0.01)
    assert shown.count("time in ms") == 2


def test_the_area_of_busy_and_of_each_cause_is_its_time() -> None:
    profile = traced()
    assert profile.timelines is not None
    root, eager = picture(profile), profile.timelines.eager
    lane = min(y for _, y, _, _ in bars(root, "framework"))
    for cause, ns in [("busy", eager.busy_ns), *((part.cause, part.ns) for part in eager.idle)]:
        drawn = [bar for bar in bars(root, cause) if lane <= bar[1] < lane + _IDLE_LANE]
        assert area(drawn) == pytest.approx(ns * scale(root) * _IDLE_LANE, rel=0.01)
    for part in eager.idle:
        assert CAUSES[part.cause] in texts(root)


def test_every_tone_has_a_color_of_the_page_and_every_cause_a_pattern() -> None:
    assert CAUSES.keys() | {"other"} == _patterns().keys()
    assert {
        *_patterns(),
        "busy",
        "copy",
        "launch",
        "range",
        "operator",
        "card",
    } <= _palette().keys()
    style = picture(traced()).findtext(f"{SVG}style") or ""
    light, _, dark = style.partition("@media(prefers-color-scheme:dark)")
    for name in ("busy", "framework", "card"):
        assert _palette()[name][0] in light
        assert _palette()[name][1] in dark


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDINGS.iterdir()))
def test_the_picture_of_an_ordinary_profile_is_small(name: str) -> None:
    profile = profile_of(RECORDINGS / name, ReadOptions(15.0, None))
    assert len(str(render(profile, "svg")).encode()) < 100_000


def test_slices_narrower_than_a_pixel_keep_their_sum_in_a_small_file() -> None:
    profile = traced()
    assert profile.timelines is not None
    eager = profile.timelines.eager
    many = 40_000
    lane = replace(
        eager.lanes[1],
        start_ns=tuple(range(0, 25 * many, 25)),
        duration_ns=(15,) * many,
        label=(1,) * many,
    )
    lanes = (eager.lanes[0], lane, *eager.lanes[2:])
    timelines = replace(profile.timelines, eager=replace(eager, lanes=lanes))
    made = render(replace(profile, timelines=timelines), "svg")
    assert isinstance(made, str)
    assert len(made) < 60_000
    root = ET.fromstring(made)
    top = min(y for _, y, _, _ in bars(root, "launch"))
    drawn = [bar for bar in bars(root, "launch") if bar[1] < top + _LANE]
    assert area(drawn) == pytest.approx(15 * many * scale(root) * _LANE, rel=0.01)


def test_curves_have_axes_and_the_crossover() -> None:
    root = picture(comparisons.comparison())
    shown = texts(root)
    assert {"8", "32", "128", "256", "batch size", "ms per iteration", "eager", "replay"} <= {
        *shown
    }
    assert any(text.startswith("crossover") for text in shown)
    assert "1,024" not in shown  # it was not measured
    assert whiskers(root) == []


def whiskers(root: ET.Element) -> list[str]:
    paths = root.iter(f"{SVG}path")
    return [path.get("d", "") for path in paths if path.get("stroke-width") == "1.5"]


def spread(comparison: Comparison) -> Comparison:
    """Half of the eager samples a fifth above the others."""
    points = []
    for point in comparison.points:
        if point.profile is not None:
            low = point.profile.value("iteration_ms") or 0.0
            timed = Metric.of_samples([low, low, 1.2 * low, 1.2 * low], "ms")
            metrics = {**point.profile.metrics, "iteration_ms": timed}
            point = replace(point, profile=replace(point.profile, metrics=metrics))
        points.append(point)
    return replace(comparison, points=tuple(points))


def test_a_bar_spans_the_spread_of_each_point() -> None:
    comparison = spread(comparisons.comparison())
    bars_of_points = whiskers(picture(comparison))
    measured = [point for point in comparison.points if point.profile is not None]
    assert len(bars_of_points) == len(measured)
    for drawn in bars_of_points:
        low, high = re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", drawn)[0]
        assert float(high) < float(low)  # up is down in SVG


def test_what_has_nothing_to_draw_is_refused_with_what_to_do() -> None:
    for value, hint in (
        (advise(rehearsal()), "--trace"), (comparisons.strategies(), "--batch-sizes"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as error:
            render(value, "svg")
        assert hint in (error.value.hint or "")


@pytest.mark.parametrize("make", [traced, comparisons.comparison], ids=["timeline", "curves"])
@pytest.mark.parametrize("names", [NASTY, NASTY[::-1]], ids=["nasty", "reversed"])
def test_names_are_text(make: object, names: tuple[str, ...]) -> None:
    value = make()  # type: ignore[operator]
    made, calm = (picture(filled(value, endless(given))) for given in (names, harmless(names)))
    assert {e.tag for e in made.iter()} == {e.tag for e in calm.iter()}
    assert not any(e.tag in (f"{SVG}script", f"{SVG}a", f"{SVG}image") for e in made.iter())
    for element in made.iter():
        assert not {name for name in element.attrib if name.startswith("on") or "href" in name}


@pytest.mark.child
@needs_browser
def test_a_browser_draws_it_inside_its_frame(tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        for name, value in (("timeline", traced()), ("curves", comparisons.comparison())):
            path = tmp_path / f"{name}.svg"
            path.write_text(str(render(value, "svg")), encoding="utf-8")
            page.show(path, 1000)
            wide = page.run(
                "Math.max(...[...document.querySelectorAll('text')].map((e) => e.getBBox())"
                ".map((box) => box.x + box.width))"
            )
            assert wide <= 960
            assert not page.errors
