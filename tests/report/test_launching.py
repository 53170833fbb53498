"""What launched the work, in reports."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from launchscope.model import StepBoundary
from launchscope.parser import read_profile
from launchscope.report import RenderOptions, render
from tests.rules.profiles import launched


def test_only_a_verbose_report_has_the_details() -> None:
    brief = render(launched(), "terminal", RenderOptions(brief=True))
    whole = render(launched(), "terminal")
    for heading in (
        "GPU idle, waiting for launches, by line",
        "Launches by operator",
    ):
        assert heading not in str(brief)
        assert heading in str(whole)


def test_a_saved_profile_keeps_what_launched_its_work(tmp_path: Path) -> None:
    file, made = tmp_path / "profile.json", render(launched(), "json")
    file.write_bytes(made if isinstance(made, bytes) else made.encode())
    assert read_profile(file) == launched()


def test_a_span_has_no_figures_per_step() -> None:
    step = StepBoundary("none", (), (), "full_step")
    text = str(render(replace(launched(), step=step), "terminal", RenderOptions(top=10_000)))
    details = text[text.index("waiting for launches, by line") :]
    assert "per step" not in details
