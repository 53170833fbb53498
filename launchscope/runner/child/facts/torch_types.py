"""Names for objects of torch. They are Any, because the script imports torch and not we."""

from __future__ import annotations

from typing import Any, TypeAlias

Torch: TypeAlias = Any  # the torch module itself
Tensor: TypeAlias = Any
Storage: TypeAlias = Any
StorageRef: TypeAlias = Any  # a weak, hashable reference to a storage
DType: TypeAlias = Any
Device: TypeAlias = Any
Module: TypeAlias = Any
Optimizer: TypeAlias = Any
ParamGroup: TypeAlias = dict[str, Any]
Op: TypeAlias = Any  # an OpOverload: what a dispatch mode sees
Mode: TypeAlias = Any  # a dispatch or function mode, entered as a context manager
Event: TypeAlias = Any
Stream: TypeAlias = Any
Graph: TypeAlias = Any
# What a function of torch or of the script is called with, and what it returns.
Value: TypeAlias = Any
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Function: TypeAlias = Any
