"""Values that the person's code reads of tensors: an operation gives a number or, from tensors of
the GPU, a tensor in host memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Torch, Value

_LARGEST = 1 << 20  # elements
_NEAR = 4  # frames: `f"{loss}"` reads inside of torch, and dispatch has a frame of its own
_BETWEEN = ("torch._ops", "launchscope.")  # modules whose frames a rehearsal adds


def read_watch(torch: Torch, note: Callable[[str, Value], None]) -> Any:
    """A context manager; `note` gets the name of the operation and what it read."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Reads(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = operation(*args, **(kwargs or {}))
            read = _read(torch, result, args)
            if read is not None and _is_near_person(sys._getframe(1)):
                note(f"aten.{operation.overloadpacket.__name__}", read)
            return result

    return Reads()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Neither operations nor lines and calls of Python are followed, which is slow."""
    from torch.utils._python_dispatch import _disable_current_modes

    tracers = sys.getprofile(), sys.gettrace()
    sys.setprofile(None)
    sys.settrace(None)
    try:
        with _disable_current_modes():
            yield
    finally:
        sys.setprofile(tracers[0])
        sys.settrace(tracers[1])


def _read(torch: Torch, result: Value, args: Any) -> Value:
    """The number; or the tensor on the GPU, because the copy may not have arrived yet."""
    if isinstance(result, bool | int | float | complex):
        return result
    if isinstance(result, torch.Tensor) and not result.is_cuda:
        copied = [a for a in args if isinstance(a, torch.Tensor) and a.is_cuda]
        return copied[0] if copied and copied[0].numel() <= _LARGEST else None
    return None


def _is_near_person(frame: Any) -> bool:
    near = _NEAR
    while near and frame is not None and not is_persons(frame.f_code.co_filename):
        near -= not frame.f_globals.get("__name__", "").startswith(_BETWEEN)
        frame = frame.f_back
    return bool(near) and frame is not None
