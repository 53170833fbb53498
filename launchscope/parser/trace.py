"""A trace as four pandas frames; `columns` names what they hold.

Times are integer nanoseconds on the trace's own clock; `end_ns` is exclusive. A frame is
sorted by `start_ns` and has a plain 0..n-1 index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from launchscope.parser import columns as c

__all__ = ["Damage", "Ints", "Trace", "frame", "ints"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Damage:
    """What a reader had to leave out or mend; all zero and empty for a clean file."""

    events_dropped: int = 0  # events that could not be decoded, or lacked a time
    ambiguous_activities: int = 0  # correlation id used by several processes
    repairs: tuple[str, ...] = ()  # what was done to the file before it could be read

    @property
    def any(self) -> bool:
        return bool(self.events_dropped or self.ambiguous_activities or self.repairs)

    @property
    def text(self) -> str:
        """What was left out and mended, in a sentence's middle."""
        said = list(self.repairs)
        if self.events_dropped:
            said.append(f"{self.events_dropped:,} events dropped")
        if self.ambiguous_activities:
            said.append(f"{self.ambiguous_activities:,} device activities of unknown process")
        return "; ".join(said)


@dataclass(frozen=True)
class Trace:
    """One trace file. Frames have the columns of the tuples above, and may be empty."""

    calls: pd.DataFrame  # runtime and driver API calls: CALL_COLUMNS
    activities: pd.DataFrame  # what ran on the devices: ACTIVITY_COLUMNS
    ranges: pd.DataFrame  # user annotations (steps, DataLoader, optimizer): RANGE_COLUMNS
    ops: pd.DataFrame  # operators: OP_COLUMNS
    source: str
    damage: Damage = Damage()
    device_name: str | None = None
    rank: int | None = None  # of a distributed run, where the file says so
    world_size: int | None = None
    with_stack: bool = False  # Python calls were recorded too


def frame(columns: tuple[str, ...], values: dict[str, Any]) -> pd.DataFrame:
    """A frame with exactly these columns, `end_ns` added, sorted by start (ties by insertion)."""
    data: dict[str, Any] = {}
    for column in columns:
        if column == c.END:
            data[c.END] = np.asarray(values[c.START], np.int64) + np.asarray(
                values[c.DUR], np.int64
            )
        elif column in c.TEXT:
            data[column] = pd.Series(values[column], dtype=object)
        else:
            data[column] = np.asarray(values[column], np.int64)
    made = pd.DataFrame(data, columns=list(columns))
    return made.sort_values(c.START, kind="stable", ignore_index=True)


def ints(table: pd.DataFrame, column: str) -> Ints:
    """A column as an int64 array."""
    return table[column].to_numpy(np.int64)
