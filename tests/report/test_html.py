"""The HTML page: whole, self-contained, harmless, and shown by a real browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launchscope.analysis import build_profile
from launchscope.model import Comparison, Facts, Profile
from launchscope.parser import read_recording, read_saved
from launchscope.report import RenderOptions, render, reporter_named
from launchscope.rules import advise, all_rules
from tests.report.test_golden import VALUES

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "sample_workloads" / "recordings"
_VOID = {"meta", "input"}
COMPARED = ROOT / "tests/benchmarks/results"


class Page(HTMLParser):
    """Tags that were opened and closed, addresses, and the text outside of style and scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.text += data


@pytest.fixture(scope="module")
def profile() -> Profile:
    return advise(build_profile(read_recording(RECORDINGS / "small_gpt")))


def page_of(value: object) -> str:
    page = render(value, "html")
    assert isinstance(page, str)
    return page


def figures_in(page: str) -> list[dict[str, Any]]:
    """What the page's script draws."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    found: list[dict[str, Any]] = json.loads(data)
    return found


_ADDRESS = re.compile(r"https://[^\s)\"<]+")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
# What a person may follow; the page itself loads nothing.
REFERENCES = {address for rule in all_rules() for address in _ADDRESS.findall(rule.page)}


def test_every_tag_is_closed_and_nothing_is_fetched(profile: Profile) -> None:
    comparison = read_saved(COMPARED / "compare_convnet.json", Comparison)
    for value in (profile, comparison, *(make() for make in VALUES.values())):
        page = Page(page_of(value))
        assert page.open == []
        assert {a for a in page.addresses if not a.startswith("#LS")} <= REFERENCES


def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else(
    profile: Profile,
) -> None:
    page = page_of(profile)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in html.unescape(page)
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<[^>]* (?:style|on\w+)=", page)


def test_a_page_is_small_enough_to_send(profile: Profile) -> None:
    assert len(page_of(profile).encode()) < 500_000


def test_the_timeline_of_the_page_is_that_of_the_profile(profile: Profile) -> None:
    found = profile.timelines
    assert found is not None
    (drawn,) = [figure for figure in figures_in(page_of(profile)) if figure["kind"] == "timeline"]
    for step, shown in zip((found.eager, found.replay), drawn["data"]["steps"]):
        assert step is not None
        assert [lane["start"] for lane in shown["lanes"]] == [list(x.start_ns) for x in step.lanes]
        assert [lane["label"] for lane in shown["lanes"]] == [list(x.label) for x in step.lanes]


def test_the_bars_of_an_iteration_add_up_to_it(profile: Profile) -> None:
    (stack,) = [figure for figure in figures_in(page_of(profile)) if figure["kind"] == "stack"]
    totals = [sum(part["value"] for part in row["parts"]) for row in stack["data"]["rows"]]
    keys = ("iteration_ms", "replayed_iteration_ms")
    assert totals == pytest.approx([profile.value(key) for key in keys])


@pytest.mark.parametrize(
    "facts", [Facts(busy_exceeds_interval_pct=120.0), Facts(waits_exceed_idle_pct=120.0)]
)
def test_the_parts_of_a_slower_traced_iteration_are_drawn_nowhere(
    profile: Profile, facts: Facts
) -> None:
    slower = replace(profile, facts=facts)
    page = page_of(slower)
    (stack,) = [figure for figure in figures_in(page) if figure["kind"] == "stack"]
    (eager, _) = stack["data"]["rows"]
    assert [part["value"] for part in eager["parts"]] == [profile.value("iteration_ms")]
    for brief in (True, False):
        text = reporter_named("terminal").render(slower, RenderOptions(width=120, brief=brief))
        assert "2.20x the timed iteration" in " ".join(str(text).split())
        assert "█" not in text
    assert "2.20x the timed iteration" in Page(page).text


def test_without_a_trace_there_is_no_timeline_and_nothing_stands_in_for_it() -> None:
    page = page_of(VALUES["rehearsal"]())
    assert figures_in(page) == []
    assert "Timeline" not in Page(page).text


def test_a_trace_alone_claims_no_time_without_the_profiler(profile: Profile) -> None:
    assert "timed without it" in page_of(profile)
    assert "timed without it" not in page_of(replace(profile, mode="trace"))


def test_the_reason_is_more_than_the_gain_that_the_headline_has(profile: Profile) -> None:
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page_of(profile))
    exposed, *_ = [finding.title for finding in profile.findings if finding.code == "LS002"]
    assert " ".join(headline.split()).endswith(f" {exposed}.")
