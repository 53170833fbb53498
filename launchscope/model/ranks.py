"""The ranks of one run, or unrelated files, side by side."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Recommendation = Literal[
    "adopt",
    "adopt_after_fixes",
    "adopt_bucketed",
    "already_graphed",
    "stay_eager",
    "unsafe",
    "inconclusive",
]

SlowestBy = Literal["compute_ms", "launch_overhead_ms", "data_wait_ms"]


class RankRow(Struct, frozen=True):
    """One file. None: not measured, or not known. With a `problem` it could not be read."""

    name: str
    rank: int | None = None
    iteration_ms: float | None = None
    busy_ms: float | None = None  # of an iteration
    communication_ms: float | None = None  # in collectives, per iteration
    exposed_communication_ms: float | None = None  # of that, while nothing else computed
    own_ms: float | None = None  # the rest of the iteration
    launches_per_step: float | None = None
    device_ops_per_step: float | None = None  # of a rehearsal
    launch_overhead_pct: float | None = None
    launch_overhead_ms: float | None = None  # of an iteration, while the GPU was idle
    data_wait_ms: float | None = None  # likewise
    removable_pct: float | None = None
    recommendation: Recommendation | None = None
    problem: str | None = None
    target: str | None = None  # the command that was profiled
    world_size: int | None = None  # of a distributed run
    traceback: str | None = None  # its end, of a script that failed

    @property
    def compute_ms(self) -> float | None:
        """GPU time of an iteration without exposed collectives."""
        if self.busy_ms is None or self.exposed_communication_ms is None:
            return None
        return max(self.busy_ms - self.exposed_communication_ms, 0.0)


class Skew(Struct, frozen=True):
    """The spread of one figure over the ranks: smallest, median and largest."""

    key: str
    low: float
    middle: float
    high: float

    @property
    def pct(self) -> float | None:
        """Largest less smallest, of the median."""
        return 100.0 * (self.high - self.low) / self.middle if self.middle else None


class Ranks(Struct, frozen=True):
    """Rows by rank, or by name where the `files` are not ranks of one run. `slowest` is the rank
    with the most time of its own: in a collective the others wait for it."""

    rows: tuple[RankRow, ...]
    skews: tuple[Skew, ...]
    slowest: str | None
    headline: str
    notes: tuple[str, ...] = ()
    kind: Literal["ranks", "files"] = "ranks"
    slowest_by: SlowestBy | None = None  # what it does longer than the others
    schema: str = "launchscope/ranks/2"
