"""The Check: what the gate makes of a Profile, its baseline and the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model.run import Environment, Mode, Target
from launchscope.model.source_line import SourceLine

CHECK_SCHEMA = "launchscope/check/2"

Outcome = Literal["passed", "failed", "inconclusive", "not_compared"]
LimitSource = Literal["flag", "config", "default"]


@dataclass(frozen=True)
class LimitCheck:
    """One limit and what became of it.

    `value` is the median over fresh processes, `low` and `high` their range; the same of the
    baseline. `bound` is the worst value that still passes. All in `unit`; None: not measured,
    or without a baseline.
    """

    metric: str
    unit: str
    limit: str  # as it was written: "+0", "+2pp", "900"
    source: LimitSource
    outcome: Outcome
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    baseline_low: float | None = None
    baseline_high: float | None = None
    bound: float | None = None
    exact: bool = False
    better: bool = False  # than the whole range of the baseline
    relative: bool = False  # the limit is on the difference from the baseline


@dataclass(frozen=True)
class Change:
    """A kernel, op or blocker that a step has more or less often than in the baseline.

    `where` are the person's lines at which it appeared, the first the likeliest; of what
    disappeared they are lines of the baseline's source.
    """

    kind: Literal["kernel", "op", "blocker"]
    name: str
    before: float  # per step
    after: float
    where: tuple[SourceLine, ...] = ()

    @property
    def appeared(self) -> bool:
        return self.after > self.before


@dataclass(frozen=True)
class Check:
    """The gate's answer. `not_compared`: nothing that was asked for could be compared."""

    workload: str
    target: Target
    environment: Environment
    mode: Mode
    outcome: Outcome
    headline: str
    limits: tuple[LimitCheck, ...] = ()
    changes: tuple[Change, ...] = ()
    baseline: str | None = None  # where it was read
    baseline_environment: Environment | None = None
    source: SourceLine | None = None  # the line at which the step begins
    processes: int = 1
    written: str | None = None  # where this measurement was written as the baseline
    warnings: tuple[str, ...] = ()
    excused: bool = False  # a baseline was written or may be missing: nothing fails for the outcome
    schema: str = CHECK_SCHEMA

    @property
    def stale(self) -> bool:
        """Whether the baseline is worse than what the code does now."""
        return any(limit.better for limit in self.limits)
