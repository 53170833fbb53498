"""What launched the work, in the terminal and for speedscope."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchscope.errors import UsageError
from launchscope.model import Profile, StepBoundary
from launchscope.parser import read_profile
from launchscope.report import RenderOptions, render
from tests.rules.profiles import launched, profile


def speedscope(value: Profile) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(render(value, "speedscope"))
    return made


def test_only_a_verbose_report_has_the_details() -> None:
    brief = render(launched(), "terminal")
    whole = render(launched(), "terminal", RenderOptions(top=10_000))
    for heading in ("Overhead by line", "Launches by operator", "Launches and kernels", "Streams"):
        assert heading not in str(brief)
        assert heading in str(whole)
    assert render(profile(), "terminal", RenderOptions(top=8)) == render(profile(), "terminal")


def test_a_table_without_rows_is_left_out_of_its_section() -> None:
    found = launched().histograms
    assert found is not None
    unknown = replace(found, short_kernels=None, short_kernels_pct=None)
    value = replace(launched(), histograms=unknown)
    _, _, below = str(render(value, "markdown")).partition("## Launches and kernels\n")
    tables = re.findall(r"(?:^\|.*\n)+", below.partition("\n## ")[0], re.MULTILINE)
    assert [table.split("\n")[1] for table in tables] == [
        "| --- | ---: | ---: | ---: | ---: | --- |"
    ]
    assert not re.search(r"<tbody>\s*</tbody>", str(render(value, "html")))


def test_a_saved_profile_keeps_what_launched_its_work(tmp_path: Path) -> None:
    file, made = tmp_path / "profile.json", render(launched(), "json")
    file.write_bytes(made if isinstance(made, bytes) else made.encode())
    assert read_profile(file) == launched()


def test_speedscope_has_launches_and_idle_time_of_each_kind_of_source() -> None:
    made = speedscope(launched())
    assert [p["name"] for p in made["profiles"]] == [
        "launches per step by line", "GPU idle by line",
        "launches per step by module", "GPU idle by module",
        "launches per step by operator", "GPU idle by operator",
    ]  # fmt: skip
    frames = made["shared"]["frames"]
    for found in made["profiles"]:
        assert len(found["samples"]) == len(found["weights"])
        assert found["endValue"] == pytest.approx(sum(found["weights"]))
        assert all(0 <= frame < len(frames) for sample in found["samples"] for frame in sample)
    lines, modules = made["profiles"][0], made["profiles"][2]
    named = [
        [frames[i]["name"] for i in sample] for sample in (*lines["samples"], *modules["samples"])
    ]
    assert named[0] == ["train.py", "train.py:21"]
    assert named[4:] == [["Net_0", "Linear_0"], ["Net_0"]]
    assert frames[lines["samples"][0][1]] == {"name": "train.py:21", "file": "train.py", "line": 21}


def test_speedscope_leaves_out_what_was_not_measured() -> None:
    rows = tuple(replace(row, idle_ms=None) for row in launched().overhead_by_line or ())
    made = speedscope(replace(profile(), overhead_by_line=rows))
    assert [p["name"] for p in made["profiles"]] == ["launches per step by line"]


def test_speedscope_refuses_a_profile_that_does_not_say_what_launched_the_work() -> None:
    with pytest.raises(UsageError, match="does not show which lines") as refused:
        render(profile(), "speedscope")
    assert "inspect" in (refused.value.hint or "")


def test_a_span_has_no_figures_per_step() -> None:
    step = StepBoundary("none", (), (), "full_step")
    text = str(render(replace(launched(), step=step), "terminal", RenderOptions(top=10_000)))
    details = text[text.index("Overhead by line") :]
    assert "over a traced span" in details
    assert "per step" not in details
