"""Scripts that compute on another device than the first, or than the current one."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.conftest import ProfileScript, loop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
WAYS = {
    "only named": "",
    "set": "torch.cuda.set_device(1)",
    "set by torch.accelerator": "torch.accelerator.set_device_index(1)",
    "entered": "torch.cuda.device(1).__enter__()",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_on_the_second_device_is_timed_there_and_replayed(
    way: str, profile_script: ProfileScript
) -> None:
    # So much that the GPU decides: events on another device would show the host's times.
    text = loop("work = big @ big").replace(".cuda()", '.to("cuda:1")')
    text = text.replace('device="cuda"', 'device="cuda:1"')
    begin = f'{WAYS[way]}\nbig = torch.randn(4096, 4096, device="cuda:1")\n'
    result = profile_script(
        text.replace("torch.manual_seed(0)\n", f"torch.manual_seed(0)\n{begin}")
    )
    replay = result.measured.replay
    assert replay.status == "measured", result.replay_reason
    assert replay.correct.status == "verified", replay.correct
    assert result.metric("iteration_ms") == pytest.approx(result.metric("gpu_busy_ms"), rel=0.2)
