"""Unmodified scripts on the two usual trainers, through the command line.

Their libraries synchronize inside a step and have loops of their own, so a step may be
captured, stubbed or blocked. What holds in each case: a step is found and timed, the gain is
reported, and what stops a capture is named with its line.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from launchscope.api import load
from launchscope.model import Profile
from tests.processes import launchscope

pytestmark = pytest.mark.gpu

SCRIPTS = Path(__file__).with_name("trainers")
LIBRARIES = {"huggingface": ("transformers", "accelerate"), "lightning_autoencoder": ("lightning",)}
ENDS = ("measured", "what_if", "blocked")


@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def profile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The Profile of one trainer's script, run in a folder of its own."""
    name = request.param
    missing = [lib for lib in LIBRARIES[name] if importlib.util.find_spec(lib) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    folder = tmp_path_factory.mktemp(name)
    out = folder / "profile.json"
    result = launchscope(folder, "profile", "-o", str(out), str(SCRIPTS / f"{name}.py"))
    assert result.returncode == 0, result.stderr
    return load(out)


def test_the_step_is_timed_and_ends_with_a_replay_or_the_lines_that_stop_one(
    profile: Profile,
) -> None:
    assert profile.mode == "gpu"
    assert profile.step is not None
    assert profile.step.period[-1] == "optimizer"
    assert (profile.value("iteration_ms") or 0) > 0
    assert (profile.value("launches_per_step") or 0) > 0
    assert profile.replay.status in ENDS, profile.replay.reason
    assert profile.value("replay_ms" if profile.replay.status == "measured" else "removable_pct")
    assert profile.replay.status == "measured" or profile.blockers
    for blocker in profile.blockers:
        assert blocker.where is not None
        assert blocker.where.file.endswith(".py")


def test_the_gain_is_told_whatever_stops_the_capture(profile: Profile) -> None:
    assert profile.value("predicted_replay_ms") is not None
    assert profile.value("removable_pct") is not None
    assert profile.verdict is not None
    assert profile.verdict.basis in ("measured", "what_if", "predicted")
