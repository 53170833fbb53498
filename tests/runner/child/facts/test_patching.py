"""What is put in the place of something else, and taken out again in any order."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch

from launchscope.runner.child.facts.patching import replace_call


def adds(number: float) -> Any:
    return lambda call: lambda x: call(x) + number


def model() -> torch.nn.Linear:
    made = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(made.weight)
    torch.nn.init.zeros_(made.bias)
    return made


def test_a_copy_or_a_pickle_of_a_model_has_its_own_call() -> None:
    net = model()
    replace_call(net, adds(1))
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert copied(torch.ones(1)).item() == 0
