"""What the runner reads of tensors, optimizers and containers of the script."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType

from launchscope.model import TensorShape
from launchscope.runner.child.facts.torch_types import (
    Args,
    Kwargs,
    Optimizer,
    ParamGroup,
    Tensor,
    Torch,
    Value,
)

# The attributes of such objects, and of modules, are no data of a step.
_CODE = type, ModuleType, FunctionType, MethodType
_MOST_PARTS = 1_000  # containers and objects that are searched for tensors


@functools.cache
def loaded_torch() -> Torch:
    """The script's torch."""
    import torch

    return torch


def objects_of(wanted: Callable[[type], bool]) -> list[Value]:
    """Everything alive whose class is `wanted`, as far as the garbage collector lists it. There may
    be millions of objects: `wanted` is asked once per class."""
    is_wanted: Callable[[Value], bool] = functools.cache(wanted)
    return [one for one in gc.get_objects() if is_wanted(type(one))]


def objects_below(base: type) -> list[Value]:
    """Everything alive whose class is `base` or below it."""
    return objects_of(lambda kind: base in kind.__mro__)


def computes_itself(torch: Torch, tensor: Tensor) -> bool:
    """Whether the class of a tensor runs code of its own even for its shape."""
    return type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def is_distributed(tensor: Tensor) -> bool:
    """Whether each rank has a part of a tensor, as with tensor parallelism and FSDP2."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and type(tensor) is getattr(module, "DTensor", None)


def part_here(value: Value) -> Value:
    """This rank's part of a tensor that is split among ranks; any other value unchanged."""
    return value._local_tensor if is_distributed(value) else value


def dims_of(tensor: Tensor) -> tuple[int, ...]:
    """The sizes of a tensor; of a nested one, whose parts have sizes of their own, how many numbers
    it holds."""
    return (tensor.numel(),) if tensor.is_nested else tuple(map(int, tensor.shape))


def shape_of(tensor: Tensor) -> TensorShape:
    return TensorShape(dims_of(tensor), str(tensor.dtype).removeprefix("torch."))


def values_of(container: Value) -> Args:
    """The values of a dictionary, or of a list or tuple; else ()."""
    if isinstance(container, dict):
        return (*container.values(),)
    return (*container,) if isinstance(container, list | tuple) else ()


def tensors_in(torch: Torch, value: Value) -> Iterator[Tensor]:
    """The tensors in nested containers and in attributes of objects, such as a cache or a batch of
    graphs. What comes again is left out: a node of a tree may hold its parent."""
    left, seen = [value], set[int]()
    while left and len(seen) < _MOST_PARTS:
        part = left.pop()
        if isinstance(part, torch.Tensor):
            yield part
        elif id(part) not in seen and (parts := _parts_of(part)):
            seen.add(id(part))
            left += reversed(parts)


def _parts_of(value: Value) -> Args:
    """The values of a container, or of an object's attributes; () for code."""
    if isinstance(value, dict | list | tuple):
        return values_of(value)
    is_code = isinstance(value, (*_CODE, loaded_torch().nn.Module))
    return () if is_code else values_of(getattr(value, "__dict__", None))


def gradient_of(tensor: Tensor) -> Tensor | None:
    """None for a tensor that is no leaf, whose gradient torch warns about."""
    return tensor.grad if tensor.is_leaf else None


def parameters_with_state(
    optimizer: Optimizer,
) -> Iterator[tuple[ParamGroup, Tensor, Kwargs]]:
    """Each parameter with its group and its state, an empty dictionary if it has none."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield group, parameter, optimizer.state.get(parameter, {})
