"""Replaces operations that a capture cannot contain by their results of the step before.

The captured step then lacks these operations, and its replay measures what the step would cost
if they were fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launchscope.runner.child.ops.blocking import RNG, blocker_of
from launchscope.runner.child.ops.step_ops import RNG_CALLS, copies_to_gpu, dotted, sync_calls
from launchscope.runner.child.ops.torch_modes import dispatch_mode, function_mode
from launchscope.runner.child.reasons import ReasonError
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Op,
    Owner,
    Tensor,
    Torch,
    Value,
)

_MASKED = ("aten::index", "aten::index_put", "aten::index_put_")
# A wait inside an unknown op, which the inspection reports and no stub can replace.
_UNKNOWN = ("cudaStreamSynchronize",)


class StubMismatchError(ReasonError):
    """The captured step ran other blocking operations than the recorded one."""


def without_stub(ops: list[str]) -> list[str]:
    """The blockers found by the inspection for which there is no stub."""
    return [op for op in ops if op in _UNKNOWN]


@dataclass(frozen=True)
class _Call:
    """An operation and the shapes of its arguments."""

    op: str
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def shapes_text(self) -> str:
        return ", ".join(map(str, self.shapes))


@dataclass
class _Stub:
    call: _Call
    result: Value


class Stubs:
    """`record` around one whole step, `play` around the captured one, `leave` after each.

    While playing, a blocking operation does not run: it returns its recorded result. One that
    was not recorded, or not in this order, raises StubMismatchError into the script. Recorded
    ones may be missing: code that asks whether it is being captured leaves out its waits. The
    comparison of kernels then decides whether it still does the same work.
    """

    def __init__(self, torch: Torch, on_device: Callable[[Tensor], bool]):
        self._torch = torch
        self._on_device = on_device
        self.recorded: list[_Stub] = []
        self._next = 0
        self.used = 0  # operations that a capture left out
        self._playing = False
        self._strict = True
        self._modes: list[Mode] = []
        self._undo: list[Callable[[], None]] = []

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
        self._modes = [function_mode(self._on_call), dispatch_mode(self._on_op)]
        for mode in self._modes:
            mode.__enter__()

    def leave(self) -> None:
        """Take modes and patches back."""
        for mode in reversed(self._modes):
            mode.__exit__(None, None, None)
        self._modes = []
        while self._undo:
            self._undo.pop()()
        self._playing = False

    def _answer(self, call: _Call, run: Callable[[], Value]) -> Value:
        """While recording the result of `run()`; while playing the recorded one."""
        if not self._playing:
            result = run()
            self.recorded.append(_Stub(call, self._copy(result)))
            return result
        left = range(self._next, len(self.recorded))
        found = next((index for index in left if self.recorded[index].call == call), None)
        if found is None:
            if not self._strict:
                return run()
            expected = self.recorded[self._next].call if left else None
            details = {"op": call.op, "shapes": call.shapes_text}
            if expected is not None:
                details |= {"recorded_op": expected.op, "recorded_shapes": expected.shapes_text}
            raise StubMismatchError("stubs_change_the_step", **details)
        self._next = found + 1
        self._count_used()
        return self._copy(self.recorded[found].result, fresh=False)

    def _count_used(self) -> None:
        if self._playing and self._strict:
            self.used += 1

    def _copy(self, value: Value, *, fresh: bool = True) -> Value:
        """A copy that the script cannot change; while playing only another view of it."""
        if isinstance(value, self._torch.Tensor):
            if value.device.type == "cpu" or fresh:
                return value.detach().clone()
            return value.detach()
        if isinstance(value, list | tuple):
            return type(value)(self._copy(part, fresh=fresh) for part in value)
        return value

    # -------------------------------------------------------------------- dispatched ops

    def _on_op(self, op: Op, args: Args, kwargs: Kwargs) -> Value:
        category = blocker_of(self._torch, op, args, kwargs, self._on_device)
        if category is None:
            return op(*args, **kwargs)
        name = op._schema.name
        tensors = [value for value in args if isinstance(value, self._torch.Tensor)]
        call = _Call(dotted(name), tuple(tuple(tensor.shape) for tensor in tensors))
        if category == RNG:
            # A capture knows the default generator.
            self._count_used()
            return op(*args, **({**kwargs, "generator": None} if self._playing else kwargs))
        if name in _MASKED:
            indices = self._answer(call, lambda: self._positions(args[1]))
            return op(args[0], list(indices), *args[2:], **kwargs)
        if name == "aten::copy_":
            self._copy_into(call, op, args, kwargs)
            return args[0]
        return self._answer(call, lambda: op(*args, **kwargs))

    def _positions(self, indices: list[Tensor]) -> list[Tensor]:
        """Masks as the positions that they select: the same result, with a known size."""
        torch, found = self._torch, []
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                found += list(index.nonzero(as_tuple=True))
            else:
                found.append(index)
        return found

    def _copy_into(self, call: _Call, op: Op, args: Args, kwargs: Kwargs) -> None:
        """A copy between host and device; while playing, a copy from device to device."""
        target, playing = args[0], self._playing

        def run() -> Tensor:
            op(*args, **kwargs)
            return target

        known = self._answer(call, run)
        if playing:
            target.copy_(known)

    # -------------------------------------------------------------- what dispatches no op

    def _on_call(self, func: Function, args: Args, kwargs: Kwargs) -> Value:
        """`torch.tensor(x, device="cuda")` only shows as a call of the function."""
        if not copies_to_gpu(self._torch, func, args, kwargs):
            return func(*args, **kwargs)
        made = self._answer(_Call(f"torch.{func.__name__}"), lambda: func(*args, **kwargs))
        return made.requires_grad_(bool(kwargs.get("requires_grad")))

    def _patch_calls(self) -> None:
        """While playing, synchronizations do nothing; RNG state and event times are recorded."""
        cuda = self._torch.cuda
        for owner, name in sync_calls(cuda):
            self._patch(owner, name, silent=True)
        for name in RNG_CALLS:
            self._patch(cuda, name, silent=False)
        self._patch(cuda.Event, "elapsed_time", silent=False)

    def _patch(self, owner: Owner, name: str, *, silent: bool) -> None:
        original = getattr(owner, name)

        def patched(*args: Value, **kwargs: Value) -> Value:
            if not self._modes:  # somebody imported it meanwhile and kept it
                return original(*args, **kwargs)
            if silent:
                self._count_used()
                return None if self._playing else original(*args, **kwargs)
            return self._answer(_Call(f"torch.cuda.{name}"), lambda: original(*args, **kwargs))

        setattr(owner, name, patched)
        self._undo.append(lambda: setattr(owner, name, original))
