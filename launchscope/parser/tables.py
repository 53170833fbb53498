"""Columns that grow chunk by chunk while a file is read, and become frames at its end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, categorical, frame

__all__ = ["Table"]


class _Names(dict[str, int]):
    """The number of each distinct text, in order of appearance."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


class Table:
    """Rows of these columns (`end_ns` is left to the frame). Texts are kept once each."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._own = tuple(column for column in columns if column != c.END)
        self._values = {n: array("i" if n in c.TEXT else "q") for n in self._own}
        self._names = {column: _Names() for column in self._own if column in c.TEXT}

    def __len__(self) -> int:
        return len(self._values[c.START])

    @property
    def bytes(self) -> int:
        """Memory held by the rows."""
        return sum(column.itemsize * len(column) for column in self._values.values())

    def column(self, name: str) -> Ints:
        """A copy of a column of numbers, in the order in which rows were added."""
        held = self._values[name]
        return np.array(held, np.int64)

    def add(self, values: dict[str, Any]) -> None:
        """Appends rows: a list of texts, or an int64 array, per column; all equally long."""
        for column in self._own:
            if column in self._names:
                self._values[column].extend(self._codes(column, values[column]))
            else:
                numbers: Any = np.ascontiguousarray(values[column], np.int64)
                self._values[column].frombytes(memoryview(numbers).cast("B"))

    def frame(self) -> pd.DataFrame:
        """All rows, sorted by start. The table is empty afterwards."""
        made: dict[str, Any] = {}
        for column in self._own:
            held = self._values.pop(column)
            if column in self._names:
                codes = np.frombuffer(held, np.int32) if held else np.zeros(0, np.int32)
                made[column] = categorical(codes, list(self._names[column]))
            else:
                made[column] = np.frombuffer(held, np.int64) if held else np.zeros(0, np.int64)
        return frame(self._columns, made)

    def _codes(self, column: str, texts: Iterable[str]) -> Iterable[int]:
        return map(self._names[column].__getitem__, texts)
