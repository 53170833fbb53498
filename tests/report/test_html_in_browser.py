"""The HTML page in a real browser: drawn, moved, explained, sorted, and harmless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.analysis import build_profile
from launchscope.model import Comparison, KernelRow, OverheadRow, Profile, SourceLine
from launchscope.parser import read_recording, read_saved
from launchscope.report.kernel_names import short_name
from launchscope.rules import advise
from launchscope.workflows.save import write_report
from tests.report import adoptions
from tests.report.browser import Page, browser, needs_browser
from tests.report.test_golden import VALUES
from tests.report.test_html import COMPARED, RECORDINGS, figures_in, page_of

pytestmark = [pytest.mark.child, needs_browser]
WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return advise(build_profile(read_recording(RECORDINGS / "small_gpt")))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def written(value: object, folder: Path) -> Path:
    path = folder / "page.html"
    write_report(path, page_of(value))
    return path


def values_to_show() -> dict[str, object]:
    names = ("compare_convnet", "compare_strategies_small_gpt")
    compared = {name: read_saved(COMPARED / f"{name}.json", Comparison) for name in names}
    recorded = {
        name: advise(build_profile(read_recording(RECORDINGS / name)))
        for name in ("small_gpt", "variable_lengths", "wide_mlp", "lstm")
    }
    rows = (OverheadRow("<class 'package.modules.operators." + "Gather" * 20, 7.0, 2.0),)
    where = SourceLine("/a/path/" + "deep/" * 30 + "x" * 80 + ".py", 123_456)
    kernels = (*recorded["small_gpt"].kernels, KernelRow("gemm_" * 60, 9999, 9e5, where))
    long = replace(recorded["small_gpt"], overhead_by_module=rows, kernels=kernels)
    values = {name: make() for name, make in VALUES.items()}
    return {**recorded, "long names": long, **compared, **values}


# What has to be scrolled sideways, but for a patch, and tables that leave room beside them.
CUT = """[...document.querySelectorAll("main :not(.diff pre)")].filter((box) =>
  (getComputedStyle(box).overflowX !== "visible" && box.scrollWidth > box.clientWidth) ||
  (box.matches("table") && box.offsetWidth < box.parentElement.clientWidth)
).map((box) => box.outerHTML.slice(0, 200))"""


def test_every_report_is_drawn_without_an_error_and_fills_every_width(
    shown: Page, tmp_path: Path
) -> None:
    for name, value in values_to_show().items():
        path = written(value, tmp_path)
        # Colors change nothing of the layout.
        for width, dark in (*((width, False) for width in WIDTHS), (WIDTHS[-1], True)):
            shown.show(path, width, dark=dark)
            shown.run("document.querySelectorAll('.part').forEach((part) => (part.open = true))")
            assert shown.drawn("document.documentElement.scrollWidth") <= width, (name, width)
            assert shown.drawn(CUT) == [], (name, width)
            assert shown.errors == [], name
        figures, drawn = shown.run(
            "[document.querySelectorAll('figure').length,"
            " document.querySelectorAll('figure .drawn :is(canvas, svg.chart)').length]"
        )
        assert figures == len(figures_in(path.read_text(encoding="utf-8")))
        assert drawn >= figures


VIEW = "(({from, to}) => [+from, +to])(document.querySelector('canvas').dataset)"
BOX = "(({x, y, width, height}) => [x, y, width, height])"
CANVAS = f"{BOX}(document.querySelector('canvas').getBoundingClientRect())"
TIP = "document.getElementById('tip')"


@pytest.fixture
def timeline(profile: Profile, shown: Page, tmp_path: Path) -> Page:
    shown.show(written(profile, tmp_path), 1200, 1600)
    return shown


def test_the_timeline_zooms_and_moves_by_keys_buttons_and_wheel(timeline: Page) -> None:
    whole = timeline.drawn(VIEW)
    timeline.run("document.querySelector('canvas').focus()")
    timeline.press("+")
    low, high = timeline.drawn(VIEW)
    assert high - low == pytest.approx((whole[1] - whole[0]) / 1.5)
    timeline.press("ArrowRight")
    assert timeline.drawn(VIEW)[0] == pytest.approx(low + 0.15 * (high - low))
    timeline.press("ArrowLeft")
    assert timeline.drawn(VIEW) == pytest.approx([low, high])
    timeline.press("-")
    assert timeline.drawn(VIEW) == pytest.approx(whole)
    timeline.run("document.querySelector('[aria-label=\"Zoom in\"]').click()")
    timeline.press("0")
    assert timeline.drawn(VIEW) == pytest.approx(whole)

    timeline.run("document.activeElement.blur()")
    x, y, width, height = timeline.run(CANVAS)
    at = (x + width / 2, y + height / 2)
    timeline.mouse("mouseWheel", *at, deltaX=0, deltaY=-200)
    assert timeline.drawn(VIEW) == pytest.approx(whole)  # the page scrolls
    timeline.run("scrollTo(0, 0)")
    timeline.mouse("mouseWheel", *at, deltaX=0, deltaY=-200, modifiers=2)
    low, high = timeline.drawn(VIEW)
    assert high - low < 0.9 * (whole[1] - whole[0])
    timeline.mouse("mousePressed", *at)
    timeline.mouse("mouseMoved", at[0] + 100, at[1], button="left", buttons=1)
    timeline.mouse("mouseReleased", at[0] + 100, at[1])
    moved = timeline.drawn(VIEW)
    assert moved[0] < low
    assert moved[1] - moved[0] == pytest.approx(high - low)
    assert timeline.errors == []


# Of each lane of busy and idle GPU time: the share of its colored pixels that are blue. Of what is
# drawn there, only busy time is.
BLUE_SHARES = """(() => {
  const canvas = document.querySelector("canvas"), brush = canvas.getContext("2d")
  const {data} = figures[document.querySelector("figure.timeline").dataset.figure]
  const rows = laidOut(data.steps, canvas.clientWidth < 640).rows.filter((row) => row.busy)
  const track = color("track").match(/\\d+/g).map(Number)
  return rows.map(({y, height}) => {
    const pixels = brush.getImageData(canvas.clientWidth < 640 ? 0 : 150, y, canvas.width, height)
    let blue = 0, drawn = 0
    for (let at = 0; at < pixels.data.length; at += 4) {
      const [red, green, sky, alpha] = pixels.data.slice(at, at + 4)
      if (!alpha || track.every((part, of) => part === [red, green, sky][of])) continue
      drawn++
      blue += sky > red + 80
    }
    return blue / drawn
  })
})()"""


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("name", ["small_gpt", "handwritten_sgd", "torch_compile"])
def test_as_much_of_the_gpu_s_lane_is_blue_as_the_gpu_is_busy(
    name: str, width: int, shown: Page, tmp_path: Path
) -> None:
    found = advise(build_profile(read_recording(RECORDINGS / name)))
    assert found.timelines is not None
    path = written(found, tmp_path)
    for dark in (False, True):
        shown.show(path, width, dark=dark)
        eager, *_ = shown.drawn(BLUE_SHARES)
        step = found.timelines.eager
        busy = step.busy_ns / (step.busy_ns + sum(part.ns for part in step.idle))
        assert eager == pytest.approx(busy, abs=0.02)


def test_what_to_do_comes_second_and_whole(profile: Profile, shown: Page, tmp_path: Path) -> None:
    assert profile.verdict is not None
    for width in WIDTHS:
        shown.show(written(profile, tmp_path), width)
        second = "document.querySelector('main > header + section')"
        assert shown.drawn(f"{second}.querySelector('h2').textContent") == "What to do"
        steps = shown.run(f"[...{second}.querySelectorAll('li')].map((step) => step.innerText)")
        assert [step.replace("\xa0", " ") for step in steps] == [*profile.verdict.instructions]


def test_fingers_move_and_stretch_the_time_below_them(timeline: Page) -> None:
    whole = timeline.drawn(VIEW)
    x, y, width, height = timeline.run(CANVAS)
    gutter, y = 150, y + height / 2

    def time_at(px: float, view: list[float]) -> float:
        share: float = (px - x - gutter) / (width - gutter)
        return view[0] + share * (view[1] - view[0])

    left, right = x + 0.4 * width, x + 0.6 * width
    timeline.touch(
        [(left, y)], [(left, y), (right, y)], [(left - 60, y), (right + 60, y)],
        [(left - 100, y), (right + 140, y)],
    )  # fmt: skip
    pinched = timeline.drawn(VIEW)
    assert time_at(left - 100, pinched) == pytest.approx(time_at(left, whole), rel=0.02)
    assert time_at(right + 140, pinched) == pytest.approx(time_at(right, whole), rel=0.02)
    timeline.touch([(left, y)], [(left + 30, y)], [(left + 90, y + 4)])
    moved = timeline.drawn(VIEW)
    assert moved[1] - moved[0] == pytest.approx(pinched[1] - pinched[0])
    assert time_at(left + 90, moved) == pytest.approx(time_at(left, pinched), rel=0.02)
    # A finger that stays goes on alone where it is.
    timeline.touch([(left, y), (right, y)], [(left, y)], [(left + 20, y)])
    assert timeline.drawn(VIEW)[1] - timeline.drawn(VIEW)[0] == pytest.approx(moved[1] - moved[0])
    # Together again they show everything, and no more.
    timeline.touch([(left, y), (right, y)], [(left + 90, y), (left + 100, y)])
    assert timeline.drawn(VIEW) == pytest.approx(whole)
    assert timeline.errors == []


def test_the_pointer_explains_what_is_below_it(profile: Profile, timeline: Page) -> None:
    found = profile.timelines
    assert found is not None
    timeline.drawn("0")
    x, y, width, height = timeline.run(CANVAS)
    seen = set()
    for down in range(4, int(height), 6):
        timeline.mouse("mouseMoved", x + 150 + 0.3 * (width - 150), y + down)
        if not timeline.run(f"{TIP}.hidden"):
            seen.add(timeline.run(f"{TIP}.firstChild.textContent"))
    names = {label.name for label in found.labels}
    assert len(seen & names) >= 2  # an operator, a launch call or a kernel
    assert any(text.startswith(("GPU idle: CPU not ready", "GPU busy")) for text in seen)


def test_the_kernel_table_sorts_and_gives_the_full_name(profile: Profile, timeline: Page) -> None:
    cells = "[...document.querySelectorAll('table.sortable tbody tr')]"
    buttons = "document.querySelectorAll('table.sortable th button')"
    counts = [row.count for row in profile.kernels]
    for downwards in (True, False):
        timeline.run(f"{buttons}[0].click()")
        shown = timeline.run(f"{cells}.map((row) => +row.cells[0].dataset.value)")
        assert shown == sorted(counts, reverse=downwards)
    timeline.run(f"{buttons}[2].click()")
    names = timeline.run(f"{cells}.map((row) => row.querySelector('[data-full]').dataset.full)")
    assert sorted(names) == sorted(row.name for row in profile.kernels)
    assert timeline.run(f"{cells}.map((row) => row.querySelector('[data-full]').title)") == names
    texts = timeline.run(f"{cells}.map((row) => row.querySelector('[data-full]').textContent)")
    assert texts == list(map(short_name, names))
    timeline.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    timeline.run(f"{cells}[0].querySelector('.copy').click()")
    assert timeline.run("window.copied") == names[0]


def test_a_patch_is_colored_and_copied_as_git_takes_it(shown: Page, tmp_path: Path) -> None:
    value = adoptions.verified()
    value = replace(value, diff=(*value.diff, "+\tindented = '<b>&amp;\"'"))
    shown.show(written(value, tmp_path))
    shown.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    button = "document.querySelector('.diff .copy')"
    assert shown.run(f"{button}.ariaLabel") == "Copy the patch"
    shown.run(f"{button}.click()")
    assert shown.run("window.copied") == "\n".join(value.diff) + "\n"
    assert shown.drawn(f"{button}.textContent") == "Copied"
    color = "getComputedStyle(document.querySelector('.diff .{}')).color"
    colors = {shown.run(color.format(tone)) for tone in ("good", "bad", "calm", "plain")}
    assert len(colors) == 4
    box, place = (f"document.querySelector('{name}').getBoundingClientRect()"
                  for name in (".diff pre", ".diff .copy"))  # fmt: skip
    assert shown.run(f"{place}.right <= {box}.right && {place}.top >= {box}.top")
    assert shown.errors == []


def test_the_theme_follows_the_system_and_the_switch(
    profile: Profile, shown: Page, tmp_path: Path
) -> None:
    path, paper = written(profile, tmp_path), "getComputedStyle(document.body).backgroundColor"
    shown.show(path)
    light = shown.run(paper)
    shown.show(path, dark=True)
    dark = shown.run(paper)
    assert light != dark
    for chosen in (light, dark):
        shown.run("document.getElementById('theme').click()")
        assert shown.run(paper) == chosen
    assert shown.errors == []


OPEN = "[...document.querySelectorAll('.part')].map((part) => part.open)"


def test_a_phone_begins_with_the_answer_and_shows_the_rest_on_a_tap_or_on_paper(
    profile: Profile, shown: Page, tmp_path: Path
) -> None:
    path = written(profile, tmp_path)
    shown.show(path, 1200)
    assert all(shown.drawn(OPEN))
    shown.show(path, 360)
    assert not any(shown.drawn(OPEN))
    folded = shown.run("document.documentElement.scrollHeight")
    shown.run("document.querySelectorAll('.part > summary').forEach((line) => line.click())")
    assert all(shown.drawn(OPEN))
    # Keys scroll a table that was folded at first, too.
    assert shown.run("!!document.querySelector('.part .scroll[tabindex]')")
    assert folded < 0.65 * shown.run("document.documentElement.scrollHeight")
    shown.show(path, 360)
    shown.run("dispatchEvent(new Event('beforeprint'))")
    assert all(shown.run(OPEN))
    assert shown.errors == []


PICKED = "document.querySelector('.picked')"
FACTS = f"[...{PICKED}.querySelectorAll('dt')].map((t) => [t.innerText, t.nextSibling.innerText])"


def test_a_click_on_a_kernel_shows_its_launch_and_a_second_one_closes_it(timeline: Page) -> None:
    place = """(() => {
      const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect()
      const {data} = figures[document.querySelector("figure.timeline").dataset.figure]
      const {y, lane} = laidOut(data.steps, false).rows.find((row) => row.lane.kind === "gpu")
      const at = 150 + (box.width - 150) * lane.start[9] / canvas.dataset.to
      return [box.x + at, box.y + y + 8]
    })()"""
    x, y = timeline.drawn(place)
    for moved, is_shown in ((0, True), (0, False), (0, True), (0, False), (30, False)):
        timeline.mouse("mousePressed", x, y)
        timeline.mouse("mouseMoved", x + moved, y, button="left", buttons=1)
        timeline.mouse("mouseReleased", x + moved, y)
        assert timeline.drawn(f"{PICKED}.children.length > 0") == is_shown
    timeline.run("document.querySelector('[aria-label=\"Show everything\"]').click()")
    timeline.touch([(x, y)])
    assert timeline.drawn(f"{PICKED}.children.length") > 0
    assert timeline.errors == []


def test_keys_lead_from_a_kernel_of_the_table_to_its_launch_line_and_module_and_back(
    profile: Profile, timeline: Page
) -> None:
    assert profile.timelines is not None
    name = profile.kernels[0].name
    timeline.run("document.querySelector('.pickable [role=button]').focus()")
    timeline.press("Enter")
    facts = dict(timeline.drawn(FACTS))
    assert facts["Name"] == name
    assert facts["Launch"].startswith("cudaLaunchKernel, ")
    assert facts["Delay"].endswith(" the call returns")
    assert facts["Eager iteration"].startswith(f"{profile.kernels[0].count:.0f} times, ")
    sources = {(s.line, s.module) for s in profile.timelines.eager.sources}
    assert (facts["Line"].partition(",")[0], facts["Module"]) in sources
    timeline.press("Enter")  # zooms
    assert timeline.drawn(f"(([from, to]) => to - from)({VIEW})") < 1e5
    timeline.press("n")
    following = dict(timeline.drawn(FACTS))
    assert following["Name"] == name
    assert following["GPU"] != facts["GPU"]
    timeline.press("p")
    assert dict(timeline.drawn(FACTS)) == facts
    timeline.press("p")  # the last one, of the replay
    assert dict(timeline.drawn(FACTS))["Line"].startswith("that of the capture: a graph replay")
    timeline.press("Escape")
    assert timeline.drawn(f"{PICKED}.children.length") == 0
    assert timeline.run("document.activeElement.dataset.full") == name
    assert timeline.errors == []


def test_a_search_keeps_the_rows_and_counts_the_intervals_that_hold_the_text(
    profile: Profile, timeline: Page
) -> None:
    rows = "[...document.querySelectorAll('.part tr:has(td code)')].filter((row) => !row.hidden)"
    everything = timeline.run(f"{rows}.length")
    timeline.press("/")
    for key in "NVJET":
        timeline.press(key)
    kernels = [row for row in profile.kernels if "nvjet" in row.name]
    assert timeline.drawn(f"{rows}.length") == len(kernels) < everything
    found = f"{len(kernels)} in tables, {2 * sum(row.count for row in kernels):.0f} in the timeline"
    assert timeline.run("document.getElementById('found').textContent") == found
    timeline.press("Enter")
    assert "nvjet" in dict(timeline.drawn(FACTS))["Name"].lower()
    timeline.press("Escape")
    assert timeline.run("document.getElementById('search').value") == ""
    assert timeline.run(f"{rows}.length") == everything
    assert timeline.errors == []
