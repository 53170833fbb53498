"""What tensors a forward is handed, nested ones too, as one line of text; and who holds some."""

from __future__ import annotations

from typing import Any

_MOST = 64


def shapes_text(torch: Any, args: Any, kwargs: Any) -> str:
    """`(4, 83) (4, 83)`; lists, tuples and dicts are looked into, 64 tensors at most."""
    found: list[str] = []
    left: list[Any] = [*args, *kwargs.values()]
    while left and len(found) < _MOST:
        value = left.pop(0)
        if isinstance(value, torch.Tensor):
            found.append(str(tuple(value.shape)))
        elif isinstance(value, dict):
            left = [*value.values(), *left]
        elif isinstance(value, tuple | list):
            left = [*value, *left]
    return " ".join(found)


def in_training(module: Any) -> bool:
    """The mode of a module; True of what has none, as a compiled function."""
    return bool(getattr(module, "training", True))


def is_weighted(module: Any) -> bool:
    """True if the module holds a parameter, at any depth."""
    return next(iter(module.parameters()), None) is not None
