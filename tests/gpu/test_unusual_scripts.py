"""Scripts whose training is hard to see end in a measurement of the step that trains.

Which step that is does not depend on a GPU: tests/runner/test_unusual_scripts.py has all of them.
"""

from __future__ import annotations

import pytest

from tests.gpu.conftest import ProfileScript
from tests.unusual_scripts import script

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "name",
    [
        "an ODE is solved with a throw-away module",
        "layers train themselves",
        "functions of tensors",
        "acts for long before it learns",
        "mixes three kinds of steps",
    ],
)
def test_the_step_that_trains_is_replayed(profile_script: ProfileScript, name: str) -> None:
    ran = profile_script(script(name, "cuda"))
    assert ran.step.period[-1] == "optimizer"
    assert ran.measured.replay.status in ("measured", "what_if"), ran.replay_reason


def test_a_policy_that_never_learns_is_replayed_after_the_wait(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(script("acts for ever", "cuda"), "--timeout", "40")
    assert ran.step.period == ("forward",)
    assert ran.measured.replay.status in ("measured", "what_if"), ran.replay_reason
