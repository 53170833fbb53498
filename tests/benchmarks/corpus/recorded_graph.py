"""What stands in for a CUDA graph on a machine without GPUs.

The operations of a step are recorded with the tensors they ran on. A replay runs them again on
these tensors and writes into the recorded results. As in a CUDA graph, Python does not run,
numbers are those of the recording, and a tensor that the step did not make is read where it was.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REFUSED = (
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2",
    "aten::equal", "aten::is_nonzero",
)  # fmt: skip
CAPTURABLE = ("adadelta", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop")


class RecordedGraph(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func.name() in REFUSED:
            raise RuntimeError(f"{func} reads a tensor on the host, or copies from it")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, tree_leaves(result)))
        return result

    def replay(self) -> None:
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, results in self.calls:
                for old, new in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, torch.Tensor) and not _shares_memory(old, new):
                        old.copy_(new)


def _shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def prepare_cpu() -> None:
    """Optimizers accept `capturable=True` on the CPU, too, and an LSTM is made of operations that
    can be run again."""
    torch.backends.mkldnn.set_flags(False)
    for name in CAPTURABLE:
        module: Any = importlib.import_module(f"torch.optim.{name}")
        if hasattr(module, "_get_capturable_supported_devices"):
            module._get_capturable_supported_devices = lambda supports_xla=True: ["cpu", "cuda"]
