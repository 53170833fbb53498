"""Formats are found, by name and by suffix; the JSON is the Profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.errors import UsageError
from launchscope.parser import read_profile
from launchscope.report import all_reporters, render, reporter_for_path, reporter_named
from launchscope.rules import advise
from tests.rules.profiles import blocked, gpu_bound, launched, profile, rehearsal


def test_formats_are_found() -> None:
    names = [reporter.name for reporter in all_reporters()]
    assert {"json", "markdown", "terminal"} <= set(names)
    assert names == sorted(names)
    assert all(reporter_named(reporter.name) is reporter for reporter in all_reporters())


@pytest.mark.parametrize(("path", "name"), [("p.json", "json"), ("a/REPORT.MD", "markdown")])
def test_a_suffix_chooses_the_format(path: str, name: str) -> None:
    assert reporter_for_path(Path(path)).name == name


@pytest.mark.parametrize("path", ["report.pdf", "report"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        reporter_for_path(Path(path))
    assert ".json" in str(caught.value.hint)


@pytest.mark.parametrize("make", [profile, blocked, gpu_bound, rehearsal, launched])
def test_the_json_is_read_back_as_the_same_profile(make: object, tmp_path: Path) -> None:
    given = advise(make())  # type: ignore[operator]
    rendered = render(given, "json")
    assert isinstance(rendered, bytes)
    (tmp_path / "profile.json").write_bytes(rendered)
    assert read_profile(tmp_path / "profile.json") == given


@pytest.mark.parametrize(
    ("typed", "meant"), [("md", "markdown"), ("xml", "junit"), ("markdwon", "markdown")]
)
def test_a_suffix_or_an_unknown_name_leads_to_the_name_of_a_format(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as error:
        reporter_named(typed)
    assert error.value.hint == f"did you mean {meant}?"
