"""Reads integer columns of an SQLite database in chunks; what is not there comes out as -1."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np

from launchscope.parser.trace import Ints

__all__ = ["Tables", "TablesError"]

_ROWS = 50_000
# Whatever a damaged row holds comes out as an integer: -1 for what does not begin as a number
# does (a plain cast makes 0 of it, which is a time).
_NUMBER = (
    "CASE WHEN typeof(\"{0}\") IN ('integer', 'real') OR \"{0}\" GLOB '[0-9]*' "
    'THEN CAST("{0}" AS INTEGER) ELSE -1 END'
)


class TablesError(Exception):
    """Not even the list of tables could be read."""


class Tables:
    """The tables of one connection. `repairs` says which of them broke off, and where."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.repairs: list[str] = []
        self.broken = False  # one of `repairs` is a table of events
        try:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            self._columns = {str(name): self._columns_of(str(name)) for (name,) in names.fetchall()}
        except (sqlite3.Error, UnicodeError) as error:
            raise TablesError(str(error)) from error

    def has(self, table: str) -> bool:
        return table in self._columns

    def rows(
        self, table: str, wanted: tuple[str, ...], text: str | None = None
    ) -> Iterator[tuple[dict[str, Ints], list[str | None]]]:
        """Chunks of these columns, and of one text column. A missing one is -1 (None)."""
        if table not in self._columns:
            return
        there = self._columns[table]
        parts = [_NUMBER.format(n) if n in there else "-1" for n in wanted]
        parts.append(f'"{text}"' if text is not None and text in there else "NULL")
        read = 0
        try:
            cursor = self._connection.execute(f'SELECT {", ".join(parts)} FROM "{table}"')
            while chunk := cursor.fetchmany(_ROWS):
                read += len(chunk)
                columns = list(zip(*chunk))
                numbers = {n: np.asarray(columns[i], np.int64) for i, n in enumerate(wanted)}
                texts = [None if t is None else str(t) for t in columns[-1]]
                yield numbers, texts
        except (sqlite3.Error, OverflowError) as error:
            self.broken |= "ACTIVITY" in table
            self.repairs.append(f"{table} breaks off after {read:,} rows ({error})")

    def texts(self, table: str, key: str, value: str) -> dict[int, str]:
        """A table of numbered texts."""
        found: dict[int, str] = {}
        for numbers, texts in self.rows(table, (key,), text=value):
            found.update((n, t) for n, t in zip(numbers[key].tolist(), texts) if t is not None)
        return found

    def first_text(self, table: str, column: str) -> str | None:
        """The first text of a column; None where there is none."""
        for _, texts in self.rows(table, (), text=column):
            return next((text for text in texts if text), None)
        return None

    def _columns_of(self, table: str) -> set[str]:
        quoted = table.replace('"', '""')
        return {str(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{quoted}")')}
