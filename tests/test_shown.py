"""Results at a Python prompt and in a notebook: printed, saved, shown as a page."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from html.parser import HTMLParser
from pathlib import Path

import pytest

import launchscope
import launchscope.api
from launchscope.cli import main
from launchscope.config import load_settings
from launchscope.errors import ConfigError, InputError, MeasureError, UsageError
from launchscope.model import (
    CheckResult,
    Comparison,
    Profile,
    Target,
)
from launchscope.report import render
from launchscope.rules import advise
from launchscope.workflows.compare import CompareResult
from launchscope.workflows.profile import ProfileResult
from tests.gate.profiles import failed_on_gpu
from tests.report.browser import browser, needs_browser
from tests.report.comparisons import comparison
from tests.report.hostile import NASTY
from tests.rules.profiles import blocked, profile, rehearsal


@pytest.fixture
def loaded(tmp_path: Path) -> Profile:
    data = render(advise(profile()), "json")
    assert isinstance(data, bytes)
    (tmp_path / "profile.json").write_bytes(data)
    return launchscope.load(tmp_path / "profile.json")


def test_a_result_has_its_tables_as_frames(loaded: Profile) -> None:
    made = launchscope.tables(loaded)
    assert list(made) == ["metrics", "kernels", "operations", "lines", "modules", "operators"]
    assert made["kernels"]["total_us"].tolist() == sorted(
        (row.total_us for row in loaded.kernels), reverse=True
    )
    (points,) = launchscope.tables(comparison()).values()
    assert points["batch_size"].tolist() == [8, 32, 128, 256, 1024]


def test_a_profile_prints_its_verdict_how_it_is_known_and_what_to_do(loaded: Profile) -> None:
    verdict, basis, following = str(loaded).splitlines()
    assert loaded.verdict is not None
    assert verdict.startswith(f"ADOPT  {loaded.verdict.headline} The GPU waits for launches")
    assert basis.startswith("replay measured in the loop · ")
    assert following.startswith("Next: `launchscope adopt train.py --epochs 1` makes and checks ")
    assert following.endswith('save("report.html") writes the whole report.')
    assert repr(loaded).startswith("Profile(target=")


@pytest.mark.parametrize(
    "value",
    [
        advise(blocked()),
        advise(rehearsal()),
        profile(),
        profile(target=Target("script", "a\nb\033[2J.py", ())),
        comparison(),
        failed_on_gpu(),
    ],
)
def test_every_result_prints_three_lines(value: Profile | Comparison | CheckResult) -> None:
    assert len(str(value).splitlines()) == 3
    assert "\033" not in str(value)
    assert "None" not in str(value)


def test_the_result_of_a_run_prints_its_value_and_its_problem() -> None:
    measured = advise(profile())
    assert str(ProfileResult(measured)) == str(measured)
    assert str(CompareResult(comparison())) == str(comparison())
    problem = MeasureError("interrupted; this is what was measured until then")
    assert str(ProfileResult(measured, problem)) == f"{measured}\nProblem: {problem}"
    hostile = str(ProfileResult(measured, MeasureError("a\033]0;t\07\n::error::x ##vso[y")))
    assert hostile == f"{measured}\nProblem: a\\x1b]0;t\\x07\\n::error::x \\x23#vso[y"


def test_no_traceback_has_a_command_that_a_file_gives(tmp_path: Path) -> None:
    name = "##[error]x"
    made = json.loads(render(advise(profile()), "json")) | {"mode": name}
    (tmp_path / "profile.json").write_text(json.dumps(made))
    (tmp_path / "settings.toml").write_text("['##[error]x']\n" * 2)
    with pytest.raises(InputError) as damaged:
        launchscope.load(tmp_path / "profile.json")
    with pytest.raises(ConfigError) as wrong:
        load_settings(config=tmp_path / "settings.toml")
    with pytest.raises(InputError) as missing:
        launchscope.load(tmp_path / name)
    for raised in (damaged, wrong, missing):
        text = "".join(traceback.format_exception(raised.value))
        assert "##[" not in text
        assert r"\x23#[error]x" in text


def test_save_writes_what_the_command_writes(
    loaded: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("json", "html", "md", "txt"):
        ours, theirs = tmp_path / f"ours.{suffix}", tmp_path / f"theirs.{suffix}"
        ProfileResult(loaded).save(ours)
        assert main(["report", "-q", str(tmp_path / "profile.json"), "-o", str(theirs)]) == 0
        assert ours.read_text() == theirs.read_text()
    assert launchscope.load(tmp_path / "ours.json") == loaded


def test_save_refuses_what_the_option_refuses(loaded: Profile, tmp_path: Path) -> None:
    for name, message in (
        ("x.pdf", "no output format for suffix '.pdf'"),
        ("x", "a file without a suffix"),
        ("none/x.html", "is not a directory"),
        (".", "is a directory"),
    ):
        with pytest.raises(UsageError, match=message):
            loaded.save(tmp_path / name)
    with pytest.raises(UsageError, match="the format junit cannot show a Comparison"):
        comparison().save(tmp_path / "x.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]
    trace = Path(__file__).parents[1] / "sample_workloads/recordings/lstm/trace.kineto.json.gz"
    (tmp_path / "trace.json").write_bytes(trace.read_bytes())
    with pytest.raises(UsageError, match="would overwrite a recording or a trace"):
        loaded.save(tmp_path / "trace.json")


class Frames(HTMLParser):
    """The attributes of every element."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_notebook_shows_the_page_in_a_frame_that_is_alone() -> None:
    hostile = advise(profile(target=Target("script", "".join(NASTY), NASTY)))
    frames = Frames()
    frames.feed(hostile._repr_html_() or "")
    ((tag, attributes),) = frames.found
    assert tag == "iframe"
    page = render(hostile, "html")
    assert isinstance(page, str)
    assert (attributes["srcdoc"] or "").split() == page.split()
    assert attributes["sandbox"] == "allow-scripts"


@pytest.mark.child
@needs_browser
def test_the_frame_draws_in_a_browser_without_an_error(tmp_path: Path) -> None:
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><h1>notebook</h1>{advise(profile())._repr_html_()}")
    with browser(tmp_path / "browser") as shown:
        shown.show(page)
        assert shown.run("document.querySelector('iframe').offsetHeight") > 500
        assert shown.run("document.querySelector('iframe').contentDocument") is None
        assert shown.errors == []


@pytest.mark.child
def test_without_the_public_package_a_value_prints_its_fields(loaded: Profile) -> None:
    code = (
        "import pickle, sys\n"
        "value = pickle.load(sys.stdin.buffer)\n"
        "assert str(value) == repr(value) and value._repr_html_() is None\n"
        "assert not [m for m in sys.modules if m.startswith(('launchscope.report', 'rich'))]\n"
        "import launchscope.api\n"
        "assert str(value).startswith('ADOPT  ')\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(loaded), check=True, env=dict(os.environ)
    )
