"""Reports show what runs between steps beside the counts of the step; of a span, neither."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import BetweenSteps, Metric, PeriodicWork, Profile, SourceLine, StepBoundary
from launchscope.report import RenderOptions, render
from tests.gate.profiles import gpu, rehearsal, with_between
from tests.rules.profiles import launched

LOGGING = PeriodicWork(
    3, 30, 10, {"between_copies": 2, "between_syncs": 1}, (SourceLine("train.py", 60),)
)
ONCE = PeriodicWork(1, 30, None, {"between_ops": 1}, (SourceLine("train.py", 70),))


def shown(profile: Profile, name: str) -> str:
    text = render(profile, name, RenderOptions())
    return " ".join((text if isinstance(text, str) else text.decode()).split())


@pytest.mark.parametrize("name", ["terminal", "markdown", "json"])
def test_work_between_steps_is_shown(name: str) -> None:
    steps = BetweenSteps(30, periodic=(LOGGING, ONCE))
    text = shown(with_between(rehearsal(), steps, between_syncs=1.1, between_ops=3), name)
    if name == "json":
        assert '"between_syncs": { "value": 1.1' in text
        assert '"period": 10' in text
        return
    assert "device operations between steps" in text
    assert "synchronizations between steps" in text
    assert "every 10 iterations: 1 synchronization and 2 copies at train.py:60" in text
    assert "in 1 of 30 iterations, with no known period: 1 device operation at train.py:70" in text


def test_a_profile_without_these_counts_shows_nothing_of_them() -> None:
    unknown = {key: Metric(None, "1") for key in gpu().metrics if key.startswith("between")}
    old = replace(gpu(), metrics={**gpu().metrics, **unknown}, between=None)
    assert "between steps" not in shown(old, "terminal")
    more = with_between(old, BetweenSteps(10), between_launches=4, between_copies=2)
    assert "launches between steps 4" in shown(more, "terminal")


def test_a_span_has_no_figures_per_step() -> None:
    step = StepBoundary("none", (), (), "full_step")
    text = shown(replace(launched(), step=step), "terminal")
    assert "per step" not in text.partition("by line")[2].partition("All figures")[0] != ""
