"""An optimizer that a graph contains counts its steps on the device for a while."""

from __future__ import annotations

import sys

import pytest
import torch

from launchscope.graphed import cuda
from launchscope.model import OptimizerChange
from launchscope.runner.child.capture.state import OptimizerFlags


def test_steps_under_the_flag_count_and_compute_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.gpu, "type", "cpu")
    for name in ("torch.optim.optimizer", "torch.optim.adam"):
        allowed = "_get_capturable_supported_devices"
        monkeypatch.setattr(sys.modules[name], allowed, lambda *_: ["cpu"], raising=False)
    nets = [torch.nn.Linear(3, 3) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizer, usual = (torch.optim.AdamW(net.parameters()) for net in nets)
    flags = OptimizerFlags([optimizer])
    assert flags.changes == (OptimizerChange("AdamW", "capturable", True),)
    for step in range(8):
        if flagged := step in (3, 4, 6):
            flags.apply()
        for net, one in zip(nets, (optimizer, usual), strict=True):
            net(torch.ones(2, 3)).square().sum().backward()
            assert one.param_groups[0]["capturable"] is (flagged and one is optimizer)
            one.step()
        flags.revert()
    assert [float(state["step"]) for state in optimizer.state.values()] == [8.0, 8.0]
    assert torch.allclose(nets[0].weight, nets[1].weight, rtol=1e-5)
