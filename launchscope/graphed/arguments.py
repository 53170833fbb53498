"""The arguments of a call: their leaves, and the key that says which calls are of one kind. And
small questions about values: whether they are plain, where the memory of a tensor is."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import cuda
from .stats import RefusedError

Tensor = torch.Tensor

_PLAIN = frozenset(
    (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
)


def is_plain(value: Any) -> bool:
    """Immutable, and compared by value."""
    kind = type(value)
    return kind in _PLAIN or (kind is tuple and all(map(is_plain, value))) or _is_number(value)


def _is_number(value: Any) -> bool:
    """Of NumPy: what `betas[epoch]` gives."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.number, numpy.bool_))


class Same:
    """Equal to this very object alone."""

    def __init__(self, value: Any):
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return other is self._value or (isinstance(other, Same) and other._value is self._value)


def flatten(value: Any, leaves: list[Any]) -> Any:
    """The form of nested lists, dictionaries and tuples; what they hold goes to `leaves`."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, tuple([flatten(part, leaves) for part in value])
    if kind is dict:
        return kind, tuple(value), tuple([flatten(part, leaves) for part in value.values()])
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind, kind._make, tuple([flatten(part, leaves) for part in value])
    leaves.append(value)
    return None


def unflatten(form: Any, leaves: Iterator[Any]) -> Any:
    if form is None:
        return next(leaves)
    parts = [unflatten(part, leaves) for part in form[-1]]
    if form[0] is dict:
        return dict(zip(form[1], parts))
    return form[-2](parts)  # the type of the sequence, or how a named tuple is made


def key_of(leaves: list[Any], form: Any) -> Any:
    """All that belongs to the call itself. Raises RefusedError if no graph can serve it."""
    known: dict[int, int] = {}  # each tensor gets one copy, also of memory that others share
    parts = [_part(leaf, known.setdefault(id(leaf), index)) for index, leaf in enumerate(leaves)]
    kind = cuda.gpu.type
    autocast = torch.is_autocast_enabled(kind)
    return (
        tuple(parts),
        form,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled()) if autocast else 0,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch._C._len_torch_function_stack(),  # modes that may put anything in a function's place
        cuda.gpu.flags(),
        cuda.gpu.device(),
    )


def _part(leaf: Any, first: int) -> Any:
    if isinstance(leaf, Tensor):
        if type(leaf) is not Tensor or leaf.layout != torch.strided:
            text = f"an argument is a {type(leaf).__name__}, not a plain strided tensor"
            raise RefusedError("argument", text)
        if leaf.device.type != cuda.gpu.type:
            raise RefusedError(
                "argument", "an argument is in host memory; move it to the GPU first"
            )
        if leaf.requires_grad and torch.is_grad_enabled():
            raise RefusedError("argument", "an argument requires a gradient; detach() it")
        return leaf.shape, leaf.stride(), leaf.dtype, leaf.device, first
    if type(leaf).__module__ == "numpy" and not _is_number(leaf):
        text = "an argument is a NumPy array, whose values may change; make it a tensor"
        raise RefusedError("argument", text)
    return (type(leaf), leaf) if is_plain(leaf) else Same(leaf)


gradient_of = operator.attrgetter("grad")


def tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def memory(tensor: Tensor) -> Tensor:
    """What is in the memory of this process: of a DTensor its own shard, also on its way."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        for name in ("_local_tensor", "elem"):
            tensor = getattr(tensor, name, tensor)
    return tensor


def identity(tensor: Tensor) -> int:
    """Of its storage, whatever becomes of the memory; -1 without one (sparse tensors)."""
    try:
        return int(memory(tensor).untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return -1


def address(tensor: Tensor) -> int:
    """Where the memory of its storage begins; 0 without one."""
    try:
        return memory(tensor).untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def version(value: Any) -> int:
    """The number of writes to a tensor."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def clone(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.preserve_format)


def whole(tensor: Tensor) -> Tensor:
    """All elements of the tensor's storage, in one dimension."""
    tensor = memory(tensor)
    storage = tensor.untyped_storage()
    flat: Any = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    result: Tensor = flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
    return result


def by_address(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    """One tensor for each memory, because several tensors may share one."""
    return {at: tensor for tensor in tensors if (at := address(tensor))}
