"""Tensors' shapes as tests write them."""

from __future__ import annotations

import re

from launchscope.model import TensorShape


def tensors(text: str) -> tuple[TensorShape, ...]:
    """The value of `(4, 83) int64, (4,) float32`; integers where no type is named."""
    return tuple(
        TensorShape(tuple(map(int, re.findall(r"\d+", dims))), dtype or "int64")
        for dims, dtype in re.findall(r"\(([\d, ]*)\)(?: (\w+))?", text)
    )
