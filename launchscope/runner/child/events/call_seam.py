"""Replaces what a script calls in its steps by functions of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, wraps
from types import MethodType
from typing import Any, TypeAlias

from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.patching import put_in_place, replace_call, within, wrap
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Module,
    Optimizer,
    Value,
)

_SCALER_CALLS = ("scale", "unscale_", "step", "update")


@dataclass(frozen=True)
class ScriptCall:
    """A call that the script makes. `owner` is the module, the optimizer or the scaler; None for a
    backward."""

    name: str
    owner: Value
    args: Args
    kwargs: Kwargs
    _original: Function

    def make(self) -> Value:
        """Make the call as if nothing replaced it, nor what it calls."""
        return self._original(*self.args, **self.kwargs)


# Returns what the script gets.
Replacement: TypeAlias = Callable[[ScriptCall], Value]


class CallSeam:
    """Replaces the outermost calls of the observed thread, from each `replace_...` until `close`.

    Once the step is known, replaced calls are still events, whether or not a replacement makes the
    call: steps begin and end as ever. Calls that a replacement makes may themselves be replaced.
    """

    def __init__(self, hooks: Hooks):
        self._hooks, self._torch = hooks, hooks.torch
        self._undo = ExitStack()
        self._inside = False  # an original

    def close(self) -> None:
        self._undo.close()

    def replace_modules(self, modules: Iterable[Module], replacement: Replacement) -> None:
        for module in modules:
            around = partial(self._replaced, "forward", module, replacement)
            self._undo.callback(replace_call(module, around))
        self._hooks.hook_modules()  # around the replaced calls

    def replace_backward(self, replacement: Replacement) -> None:
        """Tensor.backward is replaced with it, because it calls torch.autograd.backward."""

        def around(original: Function) -> Function:
            return self._hooks.backward(self._replaced("backward", None, replacement, original))

        self._undo.callback(wrap(self._torch.autograd, "backward", around))

    def replace_optimizer_steps(
        self, optimizers: Iterable[Optimizer], replacement: Replacement
    ) -> None:
        """The closure, if there is one, is among the arguments; to call it is the replacement's
        affair."""
        for optimizer in optimizers:
            self._replace_step(optimizer, replacement)

    def replace_zero_grad(self, replacement: Replacement) -> None:
        """That of every optimizer and module."""
        for base in (self._torch.optim.Optimizer, self._torch.nn.Module):
            self._replace_method(base, "zero_grad", replacement, self._hooks.zero_grad)

    def replace_scalers(self, replacement: Replacement) -> None:
        """The calls of every GradScaler in a step. A replacement of its `step` calls
        `optimizer.step` if that is to be an event, as the scaler does."""
        for name in _SCALER_CALLS:
            self._replace_method(self._torch.amp.GradScaler, name, replacement, lambda call: call)

    def _replace_step(self, optimizer: Optimizer, replacement: Replacement) -> None:
        """On the object, where a scheduler puts its own step, and expects a bound method."""
        hooks, original = self._hooks, optimizer.step
        replaced = self._replaced("step", optimizer, replacement, within(hooks.silence, original))

        @wraps(original)
        def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Value:
            hooks.optimizer_begins(optimizer, args, kwargs)
            result = replaced(*args, **kwargs)
            hooks.optimizer_ends(optimizer, args, kwargs)
            return result

        self._undo.callback(put_in_place(optimizer, "step", MethodType(step, optimizer)))

    def _replace_method(
        self,
        base: type,
        name: str,
        replacement: Replacement,
        observed: Callable[[Function], Function],
    ) -> None:
        """In the class and in those below it that have their own."""

        def around(original: Function) -> Function:
            def method(owner: Value, *args: Any, **kwargs: Any) -> Value:
                bound = within(self._hooks.silence, MethodType(original, owner))
                return self._replaced(name, owner, replacement, bound)(*args, **kwargs)

            return observed(method)

        for kind in _with_subclasses(base):
            if name in vars(kind):
                self._undo.callback(wrap(kind, name, around))

    def _replaced(
        self, name: str, owner: Value, replacement: Replacement, original: Function
    ) -> Function:
        def untouched(*args: Any, **kwargs: Any) -> Value:
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False

        def replaced(*args: Any, **kwargs: Any) -> Value:
            if self._inside or self._hooks.ignores_thread():
                return original(*args, **kwargs)
            return replacement(ScriptCall(name, owner, args, kwargs, untouched))

        return replaced


def _with_subclasses(kind: type) -> Iterator[type]:
    left = {kind}
    while left:
        kind = left.pop()
        yield kind
        left.update(type.__subclasses__(kind))
