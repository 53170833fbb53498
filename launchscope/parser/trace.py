"""A trace as tables of NumPy columns, which `columns` names. Each table of a trace is sorted by
`start_ns`; `Table.frame()` is its pandas frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from launchscope.parser import columns as c
from launchscope.wording import plural

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Texts(Struct, frozen=True, eq=False):
    """A column of text: `codes` number the distinct `texts`, of which some may not occur."""

    codes: npt.NDArray[Any]
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Texts:
        return Texts(self.codes[rows], self.texts)

    def __eq__(self, text: object) -> Bools:  # type: ignore[override]
        """Rows that are this text."""
        return where(self, lambda own: own == text)

    def __iter__(self) -> Iterator[str]:
        return (self.texts[code] for code in self.codes.tolist())


class Table:
    """Columns of equal length by name, which nothing changes. Numbers that all fit in 32 bits may
    be stored so: `ints` gives those to calculate with."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any] | Texts]) -> None:
        self._columns = dict(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @overload
    def __getitem__(self, chosen: str) -> Any: ...
    @overload
    def __getitem__(self, chosen: npt.NDArray[Any] | slice) -> Table: ...
    def __getitem__(self, chosen: Any) -> Any:
        """A column, or the rows that a mask, an array of row numbers or a slice selects."""
        if isinstance(chosen, str):
            return self._columns[chosen]
        return Table({name: column[chosen] for name, column in self._columns.items()})

    def assign(self, **columns: npt.NDArray[Any] | Texts) -> Table:
        """The table with these columns added or replaced."""
        return Table({**self._columns, **columns})

    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame, with text as categories."""
        import pandas as pd

        made: dict[str, Any] = dict(self._columns)
        for name, column in self._columns.items():
            if isinstance(column, Texts):
                # The names stay Python strings: Arrow's refuse some that traces hold.
                texts = pd.Index(list(column.texts), dtype=object)
                made[name] = pd.Categorical.from_codes(column.codes, texts)
        return pd.DataFrame(made)


def ints(table: Table, column: str) -> Ints:
    """A column as an int64 array."""
    return np.asarray(table[column], np.int64)


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values in order, and the row of each value among them: in linear time where the
    values lie as close together as devices, streams or rows of a table."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    if most - least > len(values):
        found = unique(values)
        return found, np.searchsorted(found, values)
    seen = np.zeros(most - least + 1, np.bool_)
    seen[values - least] = True
    return np.flatnonzero(seen) + least, (np.cumsum(seen) - 1)[values - least]


def unique(values: Ints) -> Ints:
    """The distinct values in order: np.unique, which would load NumPy's masked arrays for 8 ms."""
    ordered = np.sort(values)
    last: Ints = ordered[np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]]
    return last


def median_of(values: Sequence[float] | npt.NDArray[Any]) -> float:
    """np.median of at least one value, in a tenth of the time if there are few."""
    ordered = np.sort(np.asarray(values, np.float64))  # NaN is last
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return float(ordered[-1] if np.isnan(ordered[-1]) else middle)


def is_among(values: Ints, known: Ints) -> Bools:
    """np.isin where the numbers lie far apart, or there may be none: it calls np.unique then."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    known = np.sort(known)
    found: Bools = np.append(known, known[0])[np.searchsorted(known, values)] == values
    return found


def quantile_of(values: Sequence[float] | npt.NDArray[Any], share: float) -> float:
    """np.quantile of at least one value, without loading what `unique` says."""
    ordered = np.sort(np.asarray(values, np.float64))  # NaN is last
    place = share * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    above = place - int(place)  # from the nearer of the two, as NumPy calculates
    between = low + (high - low) * above if above < 0.5 else high - (high - low) * (1 - above)
    return float(ordered[-1] if np.isnan(ordered[-1]) else between)


def where(texts: Texts, holds: Callable[[str], object]) -> Bools:
    """Rows of a text column for which this holds; it is asked once for each distinct text."""
    found = [bool(holds(text)) for text in texts.texts]
    rows: Bools = np.asarray(found, np.bool_)[texts.codes]
    return rows


def from_zero(*tables: Table) -> tuple[Table, ...]:
    """Tables, each sorted, with all times later, so that none is before 0."""
    first = min((int(table[c.START][0]) for table in tables if len(table)), default=0)
    times = {c.START, c.END} if first < 0 else set()
    return tuple(
        table.assign(**{name: table[name] - first for name in times.intersection(table.columns)})
        for table in tables
    )


def numbered(table: Table, column: str) -> tuple[Ints, list[str]]:
    """A text column as a number per row, and the text of each number."""
    found = table[column]
    return np.asarray(found.codes, np.int64), list(found.texts)


class Damage(Struct, frozen=True):
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


class Trace(Struct, frozen=True):
    """One trace file. Tables may be empty."""

    calls: Table  # runtime and driver API calls: CALL_COLUMNS
    activities: Table  # what ran on the devices: ACTIVITY_COLUMNS
    ranges: Table  # user annotations (steps, DataLoader, optimizer): RANGE_COLUMNS
    ops: Table  # operators: OP_COLUMNS, or only OP_MARKS where names were not asked for
    gradients: Table  # operators that hand a parameter its gradient, once more: OP_MARKS
    python: Table  # calls of functions and modules, if names were asked for: RANGE_COLUMNS
    damage: Damage = Damage()
    device_name: str | None = None
    rank: int | None = None  # of a distributed run, where the file says so
    world_size: int | None = None
    with_stack: bool = False  # Python calls were recorded too
