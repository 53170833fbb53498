"""The shapes of the tensors that a forward gets, nested ones too."""

from __future__ import annotations

from launchscope.model import TensorShape
from launchscope.runner.child.torch_types import Args, Kwargs, Tensor, Torch, Value

_MOST = 64


def shape_of(tensor: Tensor) -> TensorShape:
    return TensorShape(tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch."))


def input_shapes(torch: Torch, args: Args, kwargs: Kwargs) -> tuple[TensorShape, ...]:
    """Looks into lists, tuples and dicts, 64 tensors at most."""
    found: list[TensorShape] = []
    left: list[Value] = [*args, *kwargs.values()]
    while left and len(found) < _MOST:
        value = left.pop(0)
        if isinstance(value, torch.Tensor):
            found.append(shape_of(value))
        elif isinstance(value, dict):
            left = [*value.values(), *left]
        elif isinstance(value, tuple | list):
            left = [*value, *left]
    return tuple(found)


def main_input(torch: Torch, args: Args, kwargs: Kwargs) -> TensorShape | None:
    """The first tensor that an outermost forward gets; None if it gets none."""
    values = (*args, *kwargs.values())
    return next((shape_of(value) for value in values if isinstance(value, torch.Tensor)), None)
