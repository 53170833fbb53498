"""Stands in for operations that a capture cannot contain: results of one step, given back in
the next.

The captured step then lacks these operations, and its replay measures what the step would
cost with them mended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launchscope.runner.child.ops.blocking import RNG, blocker_of
from launchscope.runner.child.ops.step_ops import (
    RNG_CALLS,
    dotted,
    host_factories,
    names_cuda,
    sync_calls,
)

_MASKED = ("aten::index", "aten::index_put", "aten::index_put_")
# What inspection reports and no stub can replace: a wait inside an op that is not known.
_UNKNOWN = ("cudaStreamSynchronize",)


class StubMismatchError(RuntimeError):
    """The step ran other blocking operations than the one whose results were recorded."""


def without_stub(ops: list[str]) -> list[str]:
    """Those of the blockers found by inspection for which there is no stub."""
    return [op for op in ops if op in _UNKNOWN]


@dataclass(frozen=True)
class _Call:
    """An operation with the shapes that it was given."""

    op: str
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass
class _Stub:
    call: _Call
    result: Any


class Stubs:
    """`record` around one whole step, `play` around the captured one, `leave` after each.

    While playing, a blocking operation is not run: its recorded result is returned. One that
    was not recorded, or not in this order, raises StubMismatchError into the script. Recorded
    ones may be missing: code that asks whether it is being captured leaves out its waits, and
    whether it does the same work all the same is for the comparison of kernels to say.
    """

    def __init__(self, torch: Any, on_device: Callable[[Any], bool]):
        self._torch = torch
        self._on_device = on_device
        self._stubs: list[_Stub] = []
        self._next = 0
        self.used = 0  # operations that a capture was spared
        self._playing = False
        self._strict = True
        self._modes: list[Any] = []
        self._undo: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        """Blocking operations of the recorded step."""
        return len(self._stubs)

    def record(self) -> None:
        self._stubs = []
        self._enter(playing=False)

    def play(self, *, strict: bool = True) -> None:
        """With `strict` False an operation that was not recorded is run as it is."""
        self._enter(playing=True)
        self._strict = strict

    def _enter(self, *, playing: bool) -> None:
        self.leave()
        self._playing, self._next = playing, 0
        self._patch_calls()
        self._modes = [_function_mode(self._torch, self), _dispatch_mode(self._torch, self)]
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

    # -------------------------------------------------------------------- one operation

    def answer(self, call: _Call, run: Callable[[], Any]) -> Any:
        """`run()` while recording; the recorded result, without running, while playing."""
        if not self._playing:
            result = run()
            self._stubs.append(_Stub(call, self._copied(result)))
            return result
        later = (at for at in range(self._next, len(self._stubs)) if self._stubs[at].call == call)
        found = next(later, None)
        if found is None:
            if not self._strict:
                return run()
            known = self._stubs[self._next] if self._next < len(self._stubs) else None
            before = "no more blocking operations" if known is None else known.call.op
            raise StubMismatchError(
                f"the captured step ran {call.op} where the recorded one ran {before}, "
                "so the values that were recorded steer it"
            )
        self._next = found + 1
        self._spared()
        return self._copied(self._stubs[found].result, fresh=False)

    def _spared(self) -> None:
        if self._playing and self._strict:
            self.used += 1

    def _copied(self, value: Any, *, fresh: bool = True) -> Any:
        """A copy that the script cannot change; while playing only another view of it."""
        if isinstance(value, self._torch.Tensor):
            if value.device.type == "cpu" or fresh:
                return value.detach().clone()
            return value.detach()
        if isinstance(value, list | tuple):
            return type(value)(self._copied(part, fresh=fresh) for part in value)
        return value

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        category = blocker_of(self._torch, func, args, kwargs, self._on_device)
        if category is None:
            return func(*args, **kwargs)
        name = func._schema.name
        tensors = [value for value in args if isinstance(value, self._torch.Tensor)]
        call = _Call(dotted(name), tuple(tuple(tensor.shape) for tensor in tensors))
        if category == RNG:
            # The default generator is one that a capture knows.
            self._spared()
            return func(*args, **({**kwargs, "generator": None} if self._playing else kwargs))
        if name in _MASKED:
            indices = self.answer(call, lambda: self._expanded(args[1]))
            return func(args[0], list(indices), *args[2:], **kwargs)
        if name == "aten::copy_":
            self._copy_into(call, func, args, kwargs)
            return args[0]
        return self.answer(call, lambda: func(*args, **kwargs))

    def _expanded(self, indices: Any) -> list[Any]:
        """Masks as the positions they select: the same result, of a size that is known."""
        torch, found = self._torch, []
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                found += list(index.nonzero(as_tuple=True))
            else:
                found.append(index)
        return found

    def _copy_into(self, call: _Call, func: Any, args: Any, kwargs: Any) -> None:
        """A copy between host and device: on the device it stays a copy, from the device."""
        target, playing = args[0], self._playing

        def run() -> Any:
            func(*args, **kwargs)
            return target

        known = self.answer(call, run)
        if playing:
            target.copy_(known)

    # ------------------------------------------------------------------- no dispatched op

    def _patch_calls(self) -> None:
        """Synchronisations do nothing while playing; RNG state and event times come back."""
        cuda = self._torch.cuda
        for owner, name in sync_calls(cuda):
            self._patch(owner, name, silent=True)
        for name in RNG_CALLS:
            self._patch(cuda, name, silent=False)
        self._patch(cuda.Event, "elapsed_time", silent=False)

    def _patch(self, owner: Any, name: str, *, silent: bool) -> None:
        original = getattr(owner, name)

        def patched(*args: Any, **kwargs: Any) -> Any:
            if not self._modes:  # kept by someone who imported it meanwhile
                return original(*args, **kwargs)
            if silent:
                self._spared()
                return None if self._playing else original(*args, **kwargs)
            return self.answer(_Call(f"torch.cuda.{name}"), lambda: original(*args, **kwargs))

        setattr(owner, name, patched)
        self._undo.append(lambda: setattr(owner, name, original))


def _dispatch_mode(torch: Any, stubs: Stubs) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Stubbing(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return stubs.dispatch(func, args, kwargs or {})

    mode: Any = Stubbing
    return mode()


def _function_mode(torch: Any, stubs: Stubs) -> Any:
    """`torch.tensor(x, device="cuda")` dispatches nothing; it is seen as a function."""
    from torch.overrides import TorchFunctionMode

    class Stubbing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in host_factories(torch) and names_cuda(torch, kwargs.get("device")):
                source = args[0] if args else kwargs.get("data")
                if not isinstance(source, torch.Tensor):
                    call = _Call(f"torch.{func.__name__}")
                    made = stubs.answer(call, lambda: func(*args, **kwargs))
                    return made.requires_grad_(bool(kwargs.get("requires_grad")))
            return func(*args, **kwargs)

    return Stubbing()
