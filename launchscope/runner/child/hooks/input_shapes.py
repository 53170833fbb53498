"""The shapes of the tensors that a forward gets, nested ones too."""

from __future__ import annotations

from launchscope.runner.child.torch_types import Args, Kwargs, Torch, Value

_MOST = 64


def shapes_text(torch: Torch, args: Args, kwargs: Kwargs) -> str:
    """`(4, 83) (4, 83)`; looks into lists, tuples and dicts, 64 tensors at most."""
    found: list[str] = []
    left: list[Value] = [*args, *kwargs.values()]
    while left and len(found) < _MOST:
        value = left.pop(0)
        if isinstance(value, torch.Tensor):
            found.append(str(tuple(value.shape)))
        elif isinstance(value, dict):
            left = [*value.values(), *left]
        elif isinstance(value, tuple | list):
            left = [*value, *left]
    return " ".join(found)
