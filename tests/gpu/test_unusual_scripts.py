"""Scripts whose training is hard to see end in a measurement of the step that trains."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import ProfileScript
from tests.unusual_scripts import script

pytestmark = pytest.mark.gpu

REPEATING = (
    "an ODE is solved with a throw-away module",
    "throw-away modules make constants",
    "a module makes the data",
    "a class overrides the call",
    "layers train themselves",
    "functions of tensors",
    "acts for long before it learns",
    "mixes three kinds of steps",
)


@pytest.mark.parametrize("name", REPEATING)
def test_the_step_that_trains_is_replayed(profile_script: ProfileScript, name: str) -> None:
    ran = profile_script(script(name, "cuda"))
    assert ran.step.period[-1] == "optimizer"
    assert ran.measured.replay.status in ("measured", "what_if"), ran.replay_reason


@pytest.mark.parametrize(
    "name",
    [
        "three steps",
        "as many forwards as the trajectory takes",
        "replaces its model",
        "a helper is made for each step",
        "a copy trains beside the model",
        "adds a term to some losses",
    ],
)
def test_the_step_is_timed_at_least(profile_script: ProfileScript, name: str) -> None:
    ran = profile_script(script(name, "cuda"))
    assert ran.step.period[-1] == "optimizer"
    assert ran.metric("iteration_ms") > 0
    assert ran.metric("step_ms") > 0


def test_a_policy_that_never_learns_is_replayed_after_the_wait(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(script("acts for ever", "cuda"), "--timeout", "40")
    assert ran.step.period == ("forward",)
    assert ran.measured.replay.status in ("measured", "what_if"), ran.replay_reason
    assert any("verdict is about the forward alone" in note for note in ran.measured.notes)
