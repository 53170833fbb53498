"""What a capture cannot contain and what a replay would not do again; what to write instead."""

from __future__ import annotations

import io
import os
from typing import Any

import torch

from . import cuda
from .arguments import Tensor

_READS = {"aten::item", "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}
_DYNAMIC = {"aten::nonzero", "aten::argwhere", "aten::masked_select", "aten::bincount"}
COPIES = {"aten::copy_", "aten::_to_copy", "aten::to", "aten::_copy_from"}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_"}
# Functions of Python that a replay would not run, by their module.
_EFFECTS = {
    "builtins": {"print", "input"},
    "io": {"open"},
    "_io": {"open"},
    "time": {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "sleep"},
    os.name: {"stat", "listdir", "scandir", "open", "urandom"},
}


def operation_blocker(func: Any, args: Any, kwargs: Any, inputs: list[Tensor]) -> str | None:
    """Of an operation, in the words that a person would search for."""
    name = func._schema.name
    if name == "aten::lift_fresh":  # torch runs it on each tensor of Python or NumPy values
        return "a tensor is made of Python or NumPy values; make it once, outside of the step"
    if name in COPIES:
        return _copy_blocker(name, args, kwargs)
    if not any(tensor.device.type == cuda.gpu.type for tensor in inputs):
        return None
    if name in _READS:
        return (
            "a value is read on the host (.item(), if tensor:, ...); read it after the call, or "
            "keep it on the GPU with torch.where()"
        )
    if name in _INDEXING:
        scalar = name != "aten::index" and len(args) > 2 and args[2].numel() == 1
        masks = (i for i in args[1] or () if isinstance(i, Tensor))
        if not scalar and any(i.dtype in (torch.bool, torch.uint8) for i in masks):
            return "a boolean mask makes a shape that depends on values; use torch.where()"
    dynamic = name in _DYNAMIC or name.startswith(("aten::unique", "aten::_unique"))
    dynamic |= name == "aten::repeat_interleave" and kwargs.get("output_size") is None
    short = name.removeprefix("aten::")
    return f"the shape of {short}() depends on values; use a fixed size" if dynamic else None


def _copy_blocker(name: str, args: Any, kwargs: Any) -> str | None:
    if name == "aten::copy_":
        target, source = args[0].device.type, args[1]
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    else:
        source, wanted = args[0], kwargs.get("device")
        target = source.device.type if wanted is None else torch.device(wanted).type
        waits = not kwargs.get("non_blocking", False)
    if source.device.type == target or cuda.gpu.type not in (source.device.type, target):
        return None
    if target != cuda.gpu.type:
        return "a tensor is copied to the host; copy it after the call"
    if waits or not source.is_pinned():
        return (
            "a tensor is copied to the GPU from host memory; make it once, outside of the step, or "
            "pass it as an argument"
        )
    return None


def effect(function: Any, name: str) -> str | None:
    """What a built-in function does that no replay would do again; None if nothing is known."""
    module, owner = getattr(function, "__module__", None), getattr(function, "__self__", None)
    if isinstance(owner, io.IOBase) and name.startswith("write"):
        return "writes to a file"
    if isinstance(owner, type) and owner.__module__ == "datetime" and name in ("now", "today"):
        return f"calls {owner.__name__}.{name}()"
    if name in _EFFECTS.get(str(module), ()):
        prefix = f"{module}." if module in ("time", os.name) else ""
        return f"calls {prefix.replace(os.name, 'os')}{name}()"
    return None
