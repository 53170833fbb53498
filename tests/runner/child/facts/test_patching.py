"""What is put in the place of something else, and taken out again in any order."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch

from launchscope.runner.child.facts.patching import put_in_place, replace_call, take_out


class Plain(torch.nn.Linear):
    """Copied and pickled with all that it holds, as DistributedDataParallel is."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


def adds(number: float) -> Any:
    return lambda call: lambda x: call(x) + number


def model() -> Plain:
    made = Plain(1, 1)
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


def test_a_replaced_call_does_not_keep_the_model_alive() -> None:
    net = model()
    reference, undo = weakref.ref(net), replace_call(net, adds(1))
    gc.disable()
    try:
        del net
        assert reference() is None
    finally:
        gc.enable()
    undo()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_torchscript_model_and_a_compiled_one_take_a_replaced_call() -> None:
    eager = torch.nn.Linear(1, 1)
    compiled = torch.compile(eager, backend="eager")
    for net in (torch.jit.script(eager), compiled):
        before = net(torch.ones(1)).item()
        undo = replace_call(net, adds(1))
        assert net(torch.ones(1)).item() == pytest.approx(before + 1)
        undo()
        assert net(torch.ones(1)).item() == pytest.approx(before)


def test_a_hook_may_be_taken_out_while_torch_goes_through_its_table() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    net, steps = model(), list[str]()
    ours = register_optimizer_step_post_hook(lambda *_: take_out(ours))
    script = register_optimizer_step_post_hook(lambda *_: steps.append("the script's"))
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    assert steps == ["the script's"]
    script.remove()
    ours.remove()
