"""What a capture needs an optimizer to be constructed with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizerChange:
    """`optimizer` is the name of its class, `flag` one of its arguments."""

    optimizer: str
    flag: str
    value: bool

    def __str__(self) -> str:
        """`AdamW capturable=True`, for people."""
        return f"{self.optimizer} {self.flag}={self.value}"
