"""What a step works with, so that a script is noticed that changes it between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.modules import ObjectKeys
from launchscope.runner.child.step_pattern import OPTIMIZER, Pattern
from launchscope.wording import listed, plural

_BOTH = "so what was measured may be of both"
IN_INSPECTION = (
    "so only the steps after that were inspected, and what was measured before is of the step as "
    "it was"
)


class StepParts(NamedTuple):
    """The optimizers by their keys, the layers by theirs, and how many parameters there are."""

    optimizers: frozenset[str]  # that stepped
    layers: frozenset[str]
    held: int  # parameters, by the optimizers
    trained: int  # parameters of the layers that require gradients

    def changes_to(self, now: StepParts, expected: frozenset[str]) -> str | None:
        """What the script did, after "the script"; None if a step is what it was. A step without
        one of the `expected` optimizers has another one."""
        found = []
        if now.optimizers != self.optimizers and expected - now.optimizers:
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


class StepChanges:
    """Compares the parts of a step with those of the step that was looked at before."""

    def __init__(self, hooks: Hooks, note: Callable[[str], None]):
        self._hooks = hooks
        self._note = note
        self._noted: set[str] = set()
        self._pattern: Pattern | None = None
        self._optimizers: frozenset[str] = frozenset()  # of every step
        self._parts: StepParts | None = None
        self._layers = ObjectKeys()
        self.stepped: set[str] = set()  # optimizers, in this step

    def expect(self, pattern: Pattern, periodic: bool) -> None:
        """Such steps come from now on. If not periodic, each may have an optimizer of its own."""
        self._pattern = pattern
        self.stepped = {token.key for token in pattern.tokens if token.kind == OPTIMIZER}
        self._optimizers = frozenset(self.stepped if periodic else ())

    def is_own(self, optimizer: str) -> bool:
        """Whether an optimizer is one of the steps', as far as that is known."""
        return not self._optimizers or optimizer in self._optimizers

    def noticed(self, so: str = _BOTH) -> bool:
        """Between steps: whether the step has other parts than before. `so` says what follows."""
        if self._pattern is None:
            return False
        now = self._parts_now(self._pattern)
        before, self._parts = self._parts, now
        change = None if before is None else before.changes_to(now, self._optimizers)
        if change is not None and change not in self._noted:
            self._noted.add(change)
            self._note(f"during the measurement the script {change}, {so}")
        return change is not None

    def _parts_now(self, pattern: Pattern) -> StepParts:
        known = (self._hooks.modules.get(key) for key in pattern.keys)
        modules = [module for module in known if module is not None]
        stepping = (self._hooks.optimizers.get(key) for key in self.stepped)
        groups = (group for one in stepping if one is not None for group in one.param_groups)
        trained = (bool(t.requires_grad) for module in modules for t in module.parameters())
        return StepParts(
            frozenset(self.stepped),
            frozenset(self._layers.key(layer) for module in modules for layer in module.modules()),
            sum(len(group["params"]) for group in groups),
            sum(trained),
        )
