"""Replaces operations that a capture cannot contain by their results of the step before.

The captured step then lacks these operations, and its replay measures what the step would cost
if they were fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.blocking import (
    RNG,
    blocker_of,
    coalesces,
    index_argument,
    is_mask,
    is_uncoalesced,
)
from launchscope.runner.child.facts.patching import put_in_place
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.step_ops import RNG_CALLS, copies_to_gpu, dotted, sync_calls
from launchscope.runner.child.facts.torch_modes import dispatch_mode, function_mode
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Op,
    Tensor,
    Value,
)


class StubMismatchError(ReasonError):
    """The captured step ran other blocking operations than the recorded one."""


class StubbedCall(NamedTuple):
    """An operation and the shapes of its arguments, as text."""

    op: str
    shapes: str = ""


class Stubs:
    """`record` around one whole step, `play` around the captured one, `leave` after each.

    While playing, a blocking operation does not run: it returns its recorded result. One that
    was not recorded, or not in this order, raises StubMismatchError into the script. Recorded
    ones may be missing: code that asks whether it is being captured leaves out its waits. The
    comparison of kernels then decides whether it still does the same work.
    """

    def __init__(self, hooks: Hooks, on_device: Callable[[Tensor], bool]):
        self._hooks, self._torch = hooks, hooks.torch
        self._on_device = on_device
        self.recorded: list[tuple[StubbedCall, Value]] = []  # with the results
        self._next = 0
        self.used = 0  # operations that a capture left out
        self._active = self._playing = False
        self._strict = True
        self._entered, self._modes = contextlib.ExitStack(), contextlib.ExitStack()

    def record(self) -> None:
        self.recorded = []
        self._enter(playing=False)

    def play(self, *, strict: bool = True) -> None:
        """Without `strict`, an operation that was not recorded runs."""
        self._enter(playing=True)
        self._strict = strict

    def _enter(self, *, playing: bool) -> None:
        self.leave()
        self._playing, self._next = playing, 0
        self._patch_calls()
        self._enter_modes()
        self._hooks.around_compiled = self._without_modes
        self._entered.callback(setattr, self._hooks, "around_compiled", None)
        self._active = True

    def _enter_modes(self) -> None:
        self._modes.enter_context(function_mode(self._on_call))
        self._modes.enter_context(dispatch_mode(self._on_op))

    @contextlib.contextmanager
    def _without_modes(self) -> Iterator[None]:
        """Around compiled code, which would run eagerly in a mode; a capture holds it compiled."""
        self._hooks.around_compiled = None
        self._modes.close()
        try:
            yield
        finally:
            if self._active:
                self._hooks.around_compiled = self._without_modes
                self._enter_modes()

    def leave(self) -> None:
        """Take modes and patches back."""
        self._active = self._playing = False
        self._modes.close()
        self._entered.close()

    def _answer(self, call: StubbedCall, run: Callable[[], Value]) -> Value:
        """While recording the result of `run()`; while playing the recorded one."""
        if not self._playing:
            result = run()
            self.recorded.append((call, self._copy(result)))
            return result
        for index in range(self._next, len(self.recorded)):
            recorded, value = self.recorded[index]
            if recorded == call:
                self._next = index + 1
                self._count_used()
                return self._copy(value)
        if not self._strict:
            return run()
        details = {"op": call.op, "shapes": call.shapes}
        if self._next < len(self.recorded):
            expected, _ = self.recorded[self._next]
            details |= {"recorded_op": expected.op, "recorded_shapes": expected.shapes}
        raise StubMismatchError("stubs_change_the_step", **details)

    def _count_used(self) -> None:
        self.used += self._playing and self._strict

    def _copy(self, value: Value) -> Value:
        """A copy that the script cannot change; while playing only another view of memory on the
        device, because a copy would be in the graph."""
        if isinstance(value, self._torch.Tensor):
            view = value.detach()
            return view if self._playing and value.device.type != "cpu" else view.clone()
        if isinstance(value, list | tuple):
            return type(value)([self._copy(part) for part in value])
        return value

    def _on_op(self, op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        category = blocker_of(self._torch, op, args, kwargs, self._on_device)
        name = dotted(op._schema.name)
        if category is None:
            return run(*args, **kwargs)
        if category == RNG:  # a capture knows the default generator
            self._count_used()
            return run(*args, **({**kwargs, "generator": None} if self._playing else kwargs))
        shapes = [str(tuple(v.shape)) for v in args if isinstance(v, self._torch.Tensor)]
        call = StubbedCall(name, ", ".join(shapes))
        at = index_argument(op)
        if at is not None:
            indices = self._answer(call, lambda: self._positions(args[0], args[at]))
            return run(*args[:at], list(indices), *args[at + 1 :], **kwargs)
        if coalesces(self._torch, op, args):
            mixed = [value for value in args if is_uncoalesced(self._torch, value)]
            ordered = iter(self._answer(call, lambda: [matrix.coalesce() for matrix in mixed]))
            args = tuple(next(ordered) if any(v is m for m in mixed) else v for v in args)
            return run(*args, **kwargs)
        answer = self._answer(call, lambda: run(*args, **kwargs))
        if name == "aten.copy_":  # between host and device; while playing from device to device
            return args[0].copy_(answer) if self._playing else args[0]
        return answer

    def _positions(self, indexed: Tensor, indices: list[Tensor]) -> list[Tensor]:
        """Where the indexed tensor is; masks as the positions that they select: the same result,
        with a known size."""
        found = []
        for index in indices:
            if not isinstance(index, self._torch.Tensor):
                found.append(index)
                continue
            masks = is_mask(self._torch, index)
            chosen = index.nonzero(as_tuple=True) if masks else (index,)
            found += [positions.to(indexed.device) for positions in chosen]
        return found

    def _on_call(self, func: Function, run: Function, args: Args, kwargs: Kwargs) -> Value:
        """`torch.tensor(x, device="cuda")` only shows as a call of the function."""
        if not copies_to_gpu(self._torch, func, args, kwargs):
            return run(*args, **kwargs)
        made = self._answer(StubbedCall(f"torch.{func.__name__}"), lambda: run(*args, **kwargs))
        return made.requires_grad_(bool(kwargs.get("requires_grad")))

    def _patch_calls(self) -> None:
        """While playing, synchronizations do nothing; RNG state and event times are recorded."""
        cuda = self._torch.cuda
        for owner, name in sync_calls(cuda):
            self._patch(owner, name, silent=True)
        for name in RNG_CALLS:
            self._patch(cuda, name, silent=False)
        self._patch(cuda.Event, "elapsed_time", silent=False)

    def _patch(self, owner: object, name: str, *, silent: bool) -> None:
        original = getattr(owner, name)

        def patched(*args: Value, **kwargs: Value) -> Value:
            if not self._active:  # somebody imported it meanwhile and kept it
                return original(*args, **kwargs)
            if silent:
                self._count_used()
                return None if self._playing else original(*args, **kwargs)
            return self._answer(
                StubbedCall(f"torch.cuda.{name}"), lambda: original(*args, **kwargs)
            )

        self._entered.callback(put_in_place(owner, name, patched))
