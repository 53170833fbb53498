"""A line of source code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class SourceLine:
    """`file` is relative to the working directory where it lies below it; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        """`train.py:41`, for people."""
        return f"{self.file}:{self.line}"
