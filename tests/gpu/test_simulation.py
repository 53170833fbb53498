"""The queue simulation gives back measured iterations of loops of known make."""

from __future__ import annotations

import pytest

from tests.builders import known
from tests.gpu.conftest import ProfileScript

pytestmark = pytest.mark.gpu

LOOP = """
import time
import torch
import launchscope

x = torch.zeros({size}, device="cuda")
for _ in range(400):
    with launchscope.step():
        for _ in range(300):
            x.add_(1)
    {between}
"""

CASES = {
    "host bound": (1_000, "pass"),
    "host bound, host work between": (1_000, "time.sleep(0.002)"),
    "host bound, a wait between": (1_000, "torch.cuda.synchronize()"),
    "gpu bound": (20_000_000, "pass"),
    "gpu bound, host work between": (20_000_000, "time.sleep(0.002)"),
    "gpu bound, a wait between": (20_000_000, "torch.cuda.synchronize()"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_simulation_gives_back_the_iteration(case: str, profile_script: ProfileScript) -> None:
    size, between = CASES[case]
    ran = profile_script(LOOP.format(size=size, between=between))
    assert ran.metric("launches_per_step") == 300
    assert abs(known(ran.measured.facts.simulation_error_pct)) < 10
    assert ran.metric("projected_iteration_ms") <= 1.05 * ran.metric("iteration_ms")
    if "sleep" in between and "host bound" in case:
        # A replay frees the host inside the step, not the 2 ms that it sleeps.
        assert ran.metric("projected_iteration_ms") > 2.0
    if case == "gpu bound":
        assert ran.metric("blocked_launch_ms") > 0
        assert ran.verdict.recommendation == "stay_eager"
    if "wait" in between:
        assert ran.metric("syncs_per_step") >= 0
        assert ran.metric("sync_cost_ms") >= 0
