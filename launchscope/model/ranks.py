"""Several files side by side: the ranks of one run, or unrelated workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model.profile import Recommendation

RANKS_SCHEMA = "launchscope/ranks/1"


@dataclass(frozen=True)
class RankRow:
    """One file. None: not measured, or not known. With a `problem` it could not be read."""

    name: str
    rank: int | None = None
    iteration_ms: float | None = None
    busy_ms: float | None = None  # of an iteration
    communication_ms: float | None = None  # in NCCL or RCCL kernels, per step
    own_ms: float | None = None  # of an iteration, outside of those
    launches_per_step: float | None = None
    launch_overhead_pct: float | None = None
    removable_pct: float | None = None
    recommendation: Recommendation | None = None
    problem: str | None = None
    target: str | None = None  # the command that was profiled


@dataclass(frozen=True)
class Skew:
    """How far the ranks are apart in one figure: smallest, median and largest."""

    key: str
    low: float
    middle: float
    high: float

    @property
    def pct(self) -> float | None:
        """Largest less smallest, of the median."""
        return 100.0 * (self.high - self.low) / self.middle if self.middle else None


@dataclass(frozen=True)
class Ranks:
    """Rows by rank, or by name where the files are `workloads` and no ranks of one run.

    `slowest` is the name of the rank that the others wait for: the one with the most time of its
    own, because in a collective everybody waits for the last to come. Workloads have none.
    """

    rows: tuple[RankRow, ...]
    skews: tuple[Skew, ...]
    slowest: str | None
    headline: str
    notes: tuple[str, ...] = ()
    kind: Literal["ranks", "workloads"] = "ranks"
    schema: str = RANKS_SCHEMA
