"""A trace as four pandas frames; `columns` names what they hold.

Times are integer nanoseconds on the trace's own clock; `end_ns` is exclusive. A frame is
sorted by `start_ns` and has a plain 0..n-1 index. Text columns are categorical: a name is kept
once, however many million events carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from launchscope.parser import columns as c

__all__ = ["Damage", "Ints", "Trace", "categorical", "frame", "ints"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Damage:
    """What a reader had to leave out or mend; all zero and empty for a clean file."""

    events_dropped: int = 0  # events that could not be decoded, or lacked a time
    ambiguous_activities: int = 0  # correlation id used by several processes
    durations_mended: int = 0  # missing or negative ones, taken as 0
    repairs: tuple[str, ...] = ()  # what was done to the file before it could be read
    cut: bool = False  # the file ends before its list of events does, or a table broke off

    @property
    def any(self) -> bool:
        return bool(
            self.events_dropped or self.ambiguous_activities or self.durations_mended
            or self.repairs
        )  # fmt: skip

    @property
    def text(self) -> str:
        """What was left out and mended, in a sentence's middle."""
        said = list(self.repairs)
        if self.events_dropped:
            said.append(f"{_count(self.events_dropped, 'event')} dropped")
        if self.durations_mended:
            said.append(
                f"{_count(self.durations_mended, 'missing or negative duration')} taken as 0"
            )
        if self.ambiguous_activities:
            said.append(
                f"{_count(self.ambiguous_activities, 'kernel or copy', 'kernels and copies')} of "
                "unknown process"
            )
        return "; ".join(said)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True)
class Trace:
    """One trace file. Frames have the columns of the tuples above, and may be empty."""

    calls: pd.DataFrame  # runtime and driver API calls: CALL_COLUMNS
    activities: pd.DataFrame  # what ran on the devices: ACTIVITY_COLUMNS
    ranges: pd.DataFrame  # user annotations (steps, DataLoader, optimizer): RANGE_COLUMNS
    ops: pd.DataFrame  # operators: OP_COLUMNS, or only OP_MARKS where names were not asked for
    gradients: pd.DataFrame  # operators that hand a parameter its gradient, once more: OP_MARKS
    source: str
    damage: Damage = Damage()
    device_name: str | None = None
    rank: int | None = None  # of a distributed run, where the file says so
    world_size: int | None = None
    with_stack: bool = False  # Python calls were recorded too


def frame(columns: tuple[str, ...], values: dict[str, Any]) -> pd.DataFrame:
    """A frame with exactly these columns, `end_ns` added, sorted by start (ties by insertion).

    Text is given as a list of strings or as a Categorical. `values` is emptied on the way, so
    that a large column exists once.
    """
    order = np.argsort(np.asarray(values[c.START], np.int64), kind="stable")
    data: dict[str, Any] = {}
    if c.END in columns:
        values[c.END] = np.asarray(values[c.START], np.int64) + np.asarray(values[c.DUR], np.int64)
    for column in columns:
        value = values.pop(column)
        if column in c.TEXT:
            if not isinstance(value, pd.Categorical):
                codes, names = pd.factorize(np.asarray(value, object))
                value = categorical(codes, list(names))
            data[column] = value[order]
        else:
            data[column] = np.asarray(value, np.int64)[order]
    return pd.DataFrame(data, columns=list(columns))


def categorical(codes: Any, names: list[str]) -> pd.Categorical:
    """Text by number. The names stay Python strings: Arrow's refuse some that traces hold."""
    return pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))


def ints(table: pd.DataFrame, column: str) -> Ints:
    """A column as an int64 array."""
    return table[column].to_numpy(np.int64)
