"""A trace as pandas frames; `columns` names what they hold. A frame is sorted by `start_ns` and has
a plain 0..n-1 index. Text columns are categorical: a name is kept once."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from launchscope.parser import columns as c
from launchscope.wording import plural

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Damage:
    """What a reader left out or repaired; all zero and empty for a clean file."""

    events_dropped: int = 0  # events that could not be decoded, or lacked a time
    ambiguous_activities: int = 0  # correlation id used by several processes
    durations_repaired: int = 0  # missing or negative ones, taken as 0
    repairs: tuple[str, ...] = ()  # what was done to the file before it could be read
    cut: bool = False  # the file ends before its list of events does, or a table broke off

    @property
    def any(self) -> bool:
        return bool(self.text)

    @property
    def text(self) -> str:
        """What was left out and repaired, as a part of a sentence."""
        counts = (
            (self.events_dropped, "event", "dropped"),
            (self.durations_repaired, "missing or negative duration", "taken as 0"),
            (self.ambiguous_activities, "GPU event", "of unknown process"),
        )
        counted = [f"{plural(count, noun)} {what}" for count, noun, what in counts if count]
        return "; ".join((*self.repairs, *counted))


@dataclass(frozen=True)
class Trace:
    """One trace file. Frames may be empty."""

    calls: pd.DataFrame  # runtime and driver API calls: CALL_COLUMNS
    activities: pd.DataFrame  # what ran on the devices: ACTIVITY_COLUMNS
    ranges: pd.DataFrame  # user annotations (steps, DataLoader, optimizer): RANGE_COLUMNS
    ops: pd.DataFrame  # operators: OP_COLUMNS, or only OP_MARKS where names were not asked for
    gradients: pd.DataFrame  # operators that hand a parameter its gradient, once more: OP_MARKS
    damage: Damage = Damage()
    device_name: str | None = None
    rank: int | None = None  # of a distributed run, where the file says so
    world_size: int | None = None
    with_stack: bool = False  # Python calls were recorded too


def ints(table: pd.DataFrame, column: str) -> Ints:
    """A column as an int64 array."""
    return table[column].to_numpy(np.int64)


def where(texts: pd.Series, holds: Callable[[str], object]) -> Bools:
    """Rows of a text column for which this holds; it is asked once for each distinct text."""
    found = [bool(holds(str(text))) for text in texts.cat.categories]
    return np.asarray([*found, False])[texts.cat.codes]


class Table:
    """A frame that grows chunk by chunk while a file is read."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._values = {n: array("i" if n in c.TEXT else "q") for n in columns if n != c.END}
        self._numbers: dict[str, dict[str, int]] = {n: {} for n in columns if n in c.TEXT}

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
        """Appends rows: a list of texts (or one text for all rows), or an int64 array, per column;
        all equally long."""
        for column, held in self._values.items():
            if column in self._numbers:
                number, texts = self._numbers[column], values[column]
                if isinstance(texts, str):
                    one = number.setdefault(texts, len(number))
                    held.extend(array("i", [one]) * len(values[c.START]))
                else:
                    held.extend([number.setdefault(text, len(number)) for text in texts])
            else:
                numbers: Any = np.ascontiguousarray(values[column], np.int64)
                held.frombytes(memoryview(numbers).cast("B"))

    def frame(self) -> pd.DataFrame:
        """All rows, sorted by start (ties as added). The table is empty afterwards."""
        start = self.column(c.START)
        order = np.argsort(start, kind="stable")
        made: dict[str, Any] = {}
        if c.END in self._columns:
            made[c.END] = (start + self.column(c.DUR))[order]
        for column in list(self._values):
            held = self._values.pop(column)  # so that a large column exists once
            if column in self._numbers:
                # The names stay Python strings: Arrow's refuse some that traces hold.
                names = pd.Index(list(self._numbers[column]), dtype=object)
                made[column] = pd.Categorical.from_codes(np.asarray(held)[order], names)
            else:
                made[column] = np.asarray(held)[order]
        return pd.DataFrame(made, columns=list(self._columns))


def deduplicate(trace: Trace) -> Trace:
    """The trace with each event once: two overlapping files in one hold some twice. Only calls show
    that; equal ranges, operators and device work in one nanosecond can be real."""
    known = trace.calls[ints(trace.calls, c.CORRELATION) > 0]
    if not known[known[c.START].duplicated(keep=False)].duplicated().any():
        return trace
    names = ("calls", "activities", "ranges", "ops", "gradients")
    frames = {name: getattr(trace, name).drop_duplicates(ignore_index=True) for name in names}
    # The gradients are among the operators.
    count = sum(len(getattr(trace, name)) - len(frames[name]) for name in names[:-1])
    repair = f"{count:,} duplicated events left out"
    damage = replace(trace.damage, repairs=(*trace.damage.repairs, repair))
    return replace(trace, damage=damage, **frames)
