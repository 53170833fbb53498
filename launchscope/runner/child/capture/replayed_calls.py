"""The calls of a captured step, and their part in a step that one graph launch replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import NamedTuple

from launchscope.runner.child.events.call_seam import CallSeam, ScriptCall
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import tensors_in
from launchscope.runner.child.facts.torch_types import Module, Optimizer, Tensor, Value

_UPDATES = ("unscale_", "step", "update")  # of a scaler: nothing is left to do


class CapturedCall(NamedTuple):
    """A module's call in the captured step: the tensors that it got, and what it returned."""

    owner: int  # the id of the module
    inputs: tuple[Tensor, ...]
    result: Value


class ReplayedCalls:
    """In a captured step, writes down the calls of outermost modules. In a replayed one they return
    what the captured calls returned, the first of them launches the graph, and backward, optimizer,
    scaler and zero_grad calls do nothing.

    `launch(inputs)` gets the captured and the present tensors of a call. A call without a captured
    one, or with tensors of other shapes, runs eagerly, as does the rest of its step.
    """

    def __init__(self, hooks: Hooks, modules: Iterable[Module], optimizers: Iterable[Optimizer]):
        self._hooks, self._torch = hooks, hooks.torch
        self._modules, self._optimizers = list(modules), list(optimizers)
        self._undo = ExitStack()
        self._captured: list[CapturedCall] = []
        self._launch: Callable[[list[tuple[Tensor, Tensor]]], None] = lambda inputs: None
        self._position = 0  # among the captured calls, in this step
        self._in_step = self._launched = self._records = False
        self._differs = False  # this step from the captured one
        self.launches = self.different = 0  # replayed steps, and those that differed

    def close(self) -> None:
        """The script's calls are its own again."""
        self._records = False
        self._undo.close()

    @property
    def input_bytes(self) -> tuple[int, ...]:
        """Of the tensors that are copied in, each."""
        inputs = {id(one): one for call in self._captured for one in call.inputs}
        return tuple(one.numel() * one.element_size() for one in inputs.values())

    def record(self) -> None:
        """From now on the calls of each step are recorded; the calls of the last step count."""
        self._seam().replace_modules(self._modules, self._recorded)
        self._records = True

    def replay(self, launch: Callable[[list[tuple[Tensor, Tensor]]], None]) -> None:
        """From now on steps are replayed."""
        self._launch = launch
        self._in_step = False
        self.launches = self.different = 0
        seam = self._seam()
        seam.replace_modules(self._modules, self._module)
        seam.replace_backward(self._backward)
        seam.replace_optimizer_steps(self._optimizers, self._optimizer_step)
        seam.replace_zero_grad(self._zero_grad)
        seam.replace_scalers(self._scaler)
        self._undo.callback(wrap(self._torch.autograd, "grad", self._around_grad))

    def step_begins(self) -> None:
        self._position, self._in_step, self._launched = 0, True, False
        self._differs = False
        if self._records:
            self._captured.clear()

    def step_ends(self) -> None:
        self._in_step = False

    def _seam(self) -> CallSeam:
        self.close()
        seam = CallSeam(self._hooks)
        self._undo.callback(seam.close)
        return seam

    # ------------------------------------------------------------------- captured steps

    def _recorded(self, call: ScriptCall) -> Value:
        tensors, result = self._tensors(call), call.make()
        if self._in_step:
            self._captured.append(CapturedCall(id(call.owner), tensors, result))
        return result

    def _tensors(self, call: ScriptCall) -> tuple[Tensor, ...]:
        return tuple(tensors_in(self._torch, (call.args, call.kwargs)))

    # ------------------------------------------------------------------- replayed steps

    def _module(self, call: ScriptCall) -> Value:
        if not self._in_step or self._differs:  # an evaluation, or a step of another shape
            return call.make()
        captured, tensors = self._next(id(call.owner)), self._tensors(call)
        if captured is None or list(map(_form, tensors)) != list(map(_form, captured.inputs)):
            self._differs = True
            self.different += 1
            return call.make()
        pairs = zip(captured.inputs, tensors)
        self._go([(old, new) for old, new in pairs if old is not new])
        return captured.result

    def _next(self, owner: int) -> CapturedCall | None:
        for position, captured in enumerate(self._captured[self._position :], self._position):
            if captured.owner == owner:
                self._position = position + 1
                return captured
        return None

    def _go(self, inputs: list[tuple[Tensor, Tensor]]) -> None:
        if not self._launched:
            self._launched = True
            self.launches += 1
            self._launch(inputs)

    def _backward(self, call: ScriptCall) -> Value:
        if not self._in_step or self._differs:
            return call.make()
        self._go([])
        return None

    def _optimizer_step(self, call: ScriptCall) -> Value:
        if not self._in_step or self._differs:
            return call.make()
        self._go([])
        closure = next((one for one in (*call.args, *call.kwargs.values()) if callable(one)), None)
        return None if closure is None else closure()

    def _zero_grad(self, call: ScriptCall) -> Value:
        return call.make() if self._differs else None

    def _scaler(self, call: ScriptCall) -> Value:
        """The scaler's update follows the last optimizer of the step, and the captured step has no
        call to match it with."""
        if self._differs or call.name not in _UPDATES:
            return call.make()
        if call.name != "step":
            return None
        optimizer, *rest = call.args
        return optimizer.step(*rest, **call.kwargs)

    def _around_grad(self, original: Callable[..., Value]) -> Callable[..., Value]:
        """The graph computes the gradients that a step asks for; here they cost nothing."""

        def grad(outputs: Value, inputs: Value, *args: Value, **kwargs: Value) -> Value:
            if not self._in_step or self._differs:
                return original(outputs, inputs, *args, **kwargs)
            self._go([])
            wanted = (inputs,) if isinstance(inputs, self._torch.Tensor) else tuple(inputs)
            return tuple(one.detach().requires_grad_() for one in wanted)

        return grad


def _form(tensor: Tensor) -> Value:
    return tensor.shape, tensor.dtype, tensor.device
