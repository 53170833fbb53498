"""An optimizer that a graph contains has the numbers of its state on the device for a while."""

from __future__ import annotations

import torch

from launchscope.model import OptimizerChange
from launchscope.runner.child.capture.state import OptimizerFlags


def test_numbers_of_the_state_move_to_the_parameter_and_back() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, device="meta"))
    optimizer = torch.optim.NAdam([parameter])
    own = {name: torch.tensor(2.0) for name in ("step", "mu_product")}
    optimizer.state[parameter] = state = {**own, "exp_avg": torch.ones(3)}
    flags = OptimizerFlags([optimizer, torch.optim.SGD([parameter])])
    assert flags.changes == (OptimizerChange("NAdam", "capturable", True),)
    flags.apply()
    moved = dict(state)
    flags.apply()
    assert optimizer.param_groups[0]["capturable"]
    assert [name for name, value in moved.items() if value.is_meta] == ["step", "mu_product"]
    state.update({name: torch.tensor(3.0) for name in own})  # as a step under the flag leaves them
    flags.revert()
    assert not optimizer.param_groups[0]["capturable"]
    assert all(state[name] is value and value == 3.0 for name, value in own.items())
    flags.apply()
    assert all(state[name] is moved[name] for name in own)  # a graph refers to these
