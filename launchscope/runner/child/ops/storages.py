"""The memory behind a tensor, as something to know it by again."""

from __future__ import annotations

from typing import Any

__all__ = ["weak_storage"]


def weak_storage(tensor: Any) -> Any:
    """The storage of a tensor, whoever shares it, without keeping it alive.

    None for what has none of its own, as sparse tensors and torch.func's wrappers.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return None
