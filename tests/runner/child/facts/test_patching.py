"""What is put in the place of something else, and taken out again in any order."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from launchscope.runner.child.facts.patching import put_in_place, replace_call


def adds(number: float) -> Any:
    return lambda call: lambda x: call(x) + number


def model() -> torch.nn.Linear:
    made = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(made.weight)
    torch.nn.init.zeros_(made.bias)
    return made


def test_what_the_script_puts_in_place_of_ours_stays() -> None:
    class Owner:
        name = "the script's"

    undo = put_in_place(Owner, "name", "ours")
    undo()
    assert Owner.name == "the script's"
    undo = put_in_place(Owner, "other", "ours")
    Owner.other = "the script's"  # type: ignore[attr-defined]
    undo()
    assert Owner.other == "the script's"  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_replaced_calls_are_taken_back_in_any_order(order: tuple[int, int]) -> None:
    net, x = model(), torch.ones(1)
    undo = [replace_call(net, adds(1)), replace_call(net, adds(10))]
    assert net(x).item() == 11
    undo[order[0]]()
    assert net(x).item() == (10, 1)[order[0]]
    undo[order[1]]()
    assert net(x).item() == 0
    assert "_compiled_call_impl" not in vars(net)


def test_a_copy_or_a_pickle_of_a_model_has_its_own_call() -> None:
    net = model()
    replace_call(net, adds(1))
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert copied(torch.ones(1)).item() == 0
