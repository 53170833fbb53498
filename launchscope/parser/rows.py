"""Rows of a table while a file is read: columns that grow chunk by chunk."""

from __future__ import annotations

from array import array
from typing import Any, TypeVar

import numpy as np

from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, Table, Texts

T = TypeVar("T")


class Numbering(dict[T, int]):
    """The number of each distinct value that was looked up, in the order of the first time."""

    def __missing__(self, value: T) -> int:
        self[value] = number = len(self)
        return number


class Rows:
    """A table that grows. Numbers take 32 bits for as long as all of them fit."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._values = {n: array("q" if n == c.START else "i") for n in columns if n != c.END}
        self._numbers = {n: Numbering[str]() for n in columns if n in c.TEXT}

    def __len__(self) -> int:
        return len(self._values[c.START])

    @property
    def bytes(self) -> int:
        """Memory held by the rows."""
        return sum(column.itemsize * len(column) for column in self._values.values())

    def column(self, name: str) -> Ints:
        """A copy of a column of numbers, in the order in which rows were added."""
        return np.array(self._values[name], np.int64)

    def add(self, values: dict[str, Any]) -> None:
        """Appends rows: a list of texts (or one text for all rows), or an integer array, per
        column; all equally long."""
        for column, held in self._values.items():
            given = values[column]
            if column in self._numbers:
                number = self._numbers[column]
                if isinstance(given, str):
                    held.extend(array("i", [number[given]]) * len(values[c.START]))
                else:
                    held.extend(map(number.__getitem__, given))
                continue
            if held.typecode == "i" and given.dtype != np.int32:
                narrow = given.astype(np.int32)
                if (narrow == given).all():
                    given = narrow
                else:
                    held = self._values[column] = array("q", held)
            numbers: Any = np.ascontiguousarray(given, held.typecode)
            held.frombytes(memoryview(numbers).cast("B"))

    def table(self) -> Table:
        """All rows, sorted by start (ties as added). None are left here afterwards."""
        start = np.asarray(self._values[c.START])
        order = np.argsort(start, kind="stable")
        ends = {c.END: (start + self._values[c.DUR])[order]} if c.END in self._columns else {}
        made: dict[str, Any] = dict.fromkeys(self._columns) | ends
        for column in list(self._values):
            # Out of the dictionary, so that a large column exists once.
            sorted_ = np.asarray(self._values.pop(column))[order]
            texts = self._numbers.get(column)
            made[column] = sorted_ if texts is None else Texts(sorted_, list(texts))
        return Table(made)
