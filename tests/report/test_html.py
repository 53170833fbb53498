"""The HTML page: whole, self-contained, harmless, and shown by a real browser."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import Comparison, Profile, Target
from launchscope.parser import read_recording, read_saved
from launchscope.report import render
from launchscope.rules import advise

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "sample_workloads" / "recordings"
_VOID = {"meta", "br", "img"}
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags that were opened and closed, addresses, and the text outside of the style sheet."""

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


@pytest.fixture(scope="module")
def profile() -> Profile:
    return advise(build_profile(read_recording(RECORDINGS / "small_gpt")))


def page_of(value: object) -> str:
    page = render(value, "html")
    assert isinstance(page, str)
    return page


def test_every_tag_is_closed_and_nothing_is_fetched(profile: Profile) -> None:
    comparison = read_saved(ROOT / "tests/benchmarks/results/compare_convnet.json", Comparison)
    for value in (profile, comparison):
        page = Page(page_of(value))
        assert page.open == []
        assert page.addresses == []


def test_the_page_says_what_the_terminal_says(profile: Profile) -> None:
    text = " ".join(Page(page_of(profile)).text.split())
    assert profile.verdict is not None
    assert profile.verdict.headline in text
    for finding in profile.findings:
        assert finding.code in text


def test_names_from_a_script_are_text_and_never_markup(profile: Profile) -> None:
    hostile = replace(profile, target=Target("script", "<script>alert(1)</script>.py", ("a&b",)))
    page = page_of(hostile)
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;.py a&amp;b" in page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_lays_the_page_out(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page_of(profile), encoding="utf-8")
    assert BROWSER is not None
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-sync", "--hide-scrollbars"),
            *(f"--user-data-dir={tmp_path / 'user'}", "--window-size=900,900"),
            *(f"--screenshot={picture}", (tmp_path / "page.html").as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert picture.stat().st_size > 20_000  # an empty page of that size compresses to 5 kB
