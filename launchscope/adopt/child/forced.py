"""Makes happen what a short run may lack: another rate, an evaluation, a load, a short batch."""

from __future__ import annotations

import contextlib
import copy
import os
from typing import Any

from launchscope.adopt.child.state import TrainingState
from launchscope.model import Forced
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Module, Optimizer, Torch


def scale_rates(torch: Torch, optimizer: Optimizer, factor: float) -> bool:
    """Multiply the learning rates of an optimizer; False if it has none."""
    groups = [group for group in optimizer.param_groups if "lr" in group]
    for group in groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(factor)
        else:
            group["lr"] *= factor
    return bool(groups)


def enlarge_update(optimizer: Optimizer, by: float) -> list[tuple[dict[str, Any], str, Any]]:
    """Make the rates and the weights of new gradients in running means larger by this share; the
    result is what to put back."""
    before = []
    for group in optimizer.param_groups:
        before += [(group, name, group[name]) for name in ("lr", "betas") if name in group]
        if "lr" in group:
            group["lr"] = group["lr"] * (1 + by)
        if "betas" in group:
            group["betas"] = tuple(1 - (1 - beta) * (1 + by) for beta in group["betas"])
    return before


def load_own_state(state: TrainingState) -> bool:
    """Save and load everything, as a script does that goes on from a checkpoint."""
    things = [*state.modules(), *(optimizer for _, optimizer in state.optimizers())]
    for thing in things:
        thing.load_state_dict(copy.deepcopy(thing.state_dict()))
    return bool(things)


def keep_inputs(torch: Torch, path: str, module: Module, args: Args, kwargs: Kwargs) -> None:
    """Save what an evaluation in every run gets; nothing where it cannot be saved."""
    if not os.path.exists(path):
        with contextlib.suppress(Exception):
            inputs = {"module": _form(module), "args": args, "kwargs": kwargs}
            torch.save(inputs, f"{path}.new")
            os.rename(f"{path}.new", path)


def evaluate(torch: Torch, state: TrainingState, path: str) -> bool:
    """One forward in evaluation mode, with the same inputs in each run."""
    if not os.path.exists(path):
        return False
    inputs = torch.load(path, weights_only=False)
    module = next((m for m in state.modules() if _form(m) == inputs["module"]), None)
    if module is None:
        return False
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    with torch.no_grad():
        module(*inputs["args"], **inputs["kwargs"])
    for part, training in before:
        part.training = training
    return True


def _form(module: Module) -> list[Any]:
    """Its class, and the names and sizes of its parameters."""
    sizes = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    return [type(module).__qualname__, sizes]


def shortened(torch: Torch, batch: Any) -> Any:
    """The first half of a batch; None if nothing shows its size."""
    sizes = {t.shape[0] for t in _leaves(torch, batch) if t.dim()}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return None
    return _cut(torch, batch, (size + 1) // 2)


def _leaves(torch: Torch, value: Any) -> list[Any]:
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _cut(torch: Torch, value: Any, size: int) -> Any:
    from torch.utils import _pytree

    def cut(leaf: Any) -> Any:
        return leaf[:size] if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf

    return _pytree.tree_map(cut, value)


def force(torch: Torch, state: TrainingState, event: Forced, evaluation: str) -> bool:
    """Whether it could happen here; a short batch comes from the data loader."""
    match event:
        case "learning_rate":
            halved = [scale_rates(torch, optimizer, 0.5) for _, optimizer in state.optimizers()]
            return any(halved)
        case "evaluation":
            return evaluate(torch, state, evaluation)
        case "state_dict":
            return load_own_state(state)
    return False
