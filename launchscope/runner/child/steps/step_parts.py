"""What a step works with, so that a script is noticed that changes it between two steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from launchscope.runner.child.hooks.modules import ObjectKeys
from launchscope.runner.child.torch_types import Module, Optimizer
from launchscope.wording import listed, plural


class StepParts(NamedTuple):
    """The optimizers by their keys, the layers by theirs, and how many parameters there are."""

    optimizers: frozenset[str]  # that stepped
    layers: frozenset[str]
    held: int  # parameters, by the optimizers
    trained: int  # parameters of the layers that require gradients

    def changes_to(self, now: StepParts, expected: Iterable[str]) -> str | None:
        """What the script did, after "the script"; None if a step is what it was. A step without
        one of the `expected` optimizers has another one."""
        found = []
        if now.optimizers != self.optimizers and set(expected) - now.optimizers:
            names = sorted({key.partition("@")[0] for key in now.optimizers})
            found.append(f"went on with another optimizer ({listed(names)})")
        elif now.optimizers == self.optimizers and now.held != self.held:
            counts = f"from {plural(self.held, 'parameter')} to {now.held}"
            found.append(f"changed what its optimizer holds {counts}")
        if now.layers != self.layers:
            found.append("changed the layers of its model")
        elif now.trained != self.trained and not found:
            trained = f"{plural(self.trained, 'parameter')} that it trains to {now.trained}"
            found.append(f"went from {trained}")
        return listed(found) if found else None


def parts_of_step(
    modules: Sequence[Module],
    optimizers: Sequence[Optimizer],
    stepped: Iterable[str],
    layers: ObjectKeys,
) -> StepParts:
    """The parts as they are now; `layers` names them the same each time."""
    trained = (bool(tensor.requires_grad) for module in modules for tensor in module.parameters())
    held = (len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups)
    names = frozenset(layers.key(layer) for module in modules for layer in module.modules())
    return StepParts(frozenset(stepped), names, sum(held), sum(trained))
