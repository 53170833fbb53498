"""Shape and type of a tensor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorShape:
    """`dtype` as PyTorch names it, without the module: "float32"."""

    dims: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """`(8, 16) float32`, for people."""
        return f"{self.dims} {self.dtype}"
