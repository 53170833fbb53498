"""Counts on a GPU agree exactly with what the step was written to launch."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import ProfileScript

pytestmark = pytest.mark.gpu

ADDS = """
import torch
import launchscope

x = torch.zeros(1000, device="cuda")
host = torch.zeros(1000).pin_memory()
for _ in range(400):
    with launchscope.step():
        for _ in range(50):
            x.add_(1)
        {extra}
"""


def test_fifty_adds_are_fifty_launches(profile_script: ProfileScript) -> None:
    ran = profile_script(ADDS.format(extra="pass"))
    launches = ran.measured.metrics["launches_per_step"]
    assert (launches.value, launches.exact) == (50, True)
    assert ran.metric("memcpys_per_step") == 0
    assert ran.metric("memsets_per_step") == 0
    assert ran.metric("device_ops_per_step") == 50
    assert ran.step.boundary == "marker"
    assert ran.metric("graph_nodes") == 50


def test_copies_and_memsets_are_told_apart_from_kernels(
    profile_script: ProfileScript,
) -> None:
    extra = "x.copy_(host, non_blocking=True); y = torch.empty_like(x).zero_()"
    ran = profile_script(ADDS.format(extra=extra))
    kernels = ran.metric("launches_per_step")
    copies, sets = ran.metric("memcpys_per_step"), ran.metric("memsets_per_step")
    # zero_() is a memset or a fill kernel, depending on the version of torch.
    assert copies == 1
    assert kernels + sets == 51
    assert ran.metric("syncs_per_step") == 0


def test_a_script_that_replays_its_own_graph_is_already_graphed(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(
        """
        import torch
        import launchscope

        x = torch.zeros(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(40):
                x.add_(1)
        for _ in range(400):
            with launchscope.step():
                graph.replay()
        """
    )
    assert ran.metric("graph_launches_per_step") == 1
    assert ran.metric("launches_per_step") == 0
    assert ran.metric("kernels_per_step") == 40
    assert ran.verdict.recommendation == "already_graphed"
    assert ran.measured.replay.status == "skipped"
