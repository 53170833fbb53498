"""Every sample workload, unmodified, ends in the verdict that it was written to show."""

from __future__ import annotations

from pathlib import Path

import pytest

import launchscope
from tests import processes

pytestmark = pytest.mark.gpu

# (recommendation, replay status); what_if where blockers can be stubbed out.
EXPECTED = {
    "small_mlp": ({"adopt"}, {"measured"}),
    # It picks labels[step % 8] inside the step, which a capture freezes.
    "convnet": ({"unsafe"}, {"measured"}),
    "small_gpt": ({"adopt"}, {"measured"}),
    "transformer_inference": ({"adopt"}, {"measured"}),
    "lstm": ({"adopt"}, {"measured"}),
    "gan": ({"adopt"}, {"measured"}),
    "handwritten_sgd": ({"adopt"}, {"measured"}),
    "amp_gradscaler": ({"adopt_after_fixes"}, {"blocked", "what_if"}),
    "item_in_step": ({"adopt_after_fixes"}, {"blocked", "what_if"}),
    "variable_lengths": (
        {"stay_eager", "adopt_bucketed", "adopt_after_fixes"},
        {"blocked", "what_if"},  # the last if a shape comes again in the capture pass
    ),
    "data_dependent": ({"stay_eager", "adopt_after_fixes"}, {"blocked", "skipped"}),
    "wide_mlp": ({"stay_eager"}, {"measured"}),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_ends_in_its_verdict(name: str, tmp_path: Path, sample_workloads: Path) -> None:
    saved = tmp_path / "profile.json"
    words = ("-q", "-o", str(saved), str(sample_workloads / f"{name}.py"))
    done = processes.launchscope(tmp_path, "profile", *words)
    assert done.returncode == 0, done.stderr
    profile = launchscope.load(saved)
    assert profile.verdict is not None
    recommendations, statuses = EXPECTED[name]
    assert profile.replay.status in statuses, profile.replay.reason
    assert profile.verdict.recommendation in recommendations, profile.verdict.headline
