"""The CheckResult: what the gate makes of a Profile, its baseline and the limits."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from launchscope.model.profile import PeriodicWork
from launchscope.model.recording import Mode, SourceLine
from launchscope.model.target import Environment, Target

ChangeKind = Literal["kernel", "operator", "op", "blocker", "work"]
Outcome = Literal["passed", "failed", "inconclusive", "not_compared"]
# The version of the rules by which operations, copies and blockers are counted. It rises whenever
# an unchanged step gets other counts: a baseline of another version is not compared.
COUNTING = 2


class LimitCheck(Struct, frozen=True):
    """One limit and its outcome, from medians over fresh processes and their ranges. None: not
    measured, or without a baseline."""

    metric: str
    unit: str
    limit: str  # as it was written: "+0", "+5%", "900"
    outcome: Outcome
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    baseline_low: float | None = None
    baseline_high: float | None = None
    bound: float | None = None  # the worst value that still passes
    exact: bool = False
    better: bool = False  # than the whole range of the baseline
    relative: bool = False  # the limit is on the difference from the baseline


class Change(Struct, frozen=True):
    """A kernel, op or blocker that a step, or the work `between` two steps, has more or less often
    than in the baseline; a launch of an "operator"; or periodic "work", by its metric. `where` are
    lines of the script, the likeliest first, each with the line of an installed library to which it
    leads, if there is one; of what disappeared, lines of the old source."""

    kind: ChangeKind
    name: str
    before: float  # per step
    after: float
    where: tuple[SourceLine, ...] = ()
    between: bool = False

    @property
    def appeared(self) -> bool:
        return self.after > self.before


class CheckResult(Struct, frozen=True):
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
    upgrade: str | None = None  # "PyTorch changed from 2.11.0 to 2.12.0"
    source: SourceLine | None = None  # the line at which the step begins
    processes: int = 1
    # Where this measurement was written as the baseline: then nothing fails for the outcome.
    written: str | None = None
    warnings: tuple[str, ...] = ()
    periodic: tuple[PeriodicWork, ...] = ()  # between steps, not in every iteration
    schema: str = "launchscope/check/3"

    @property
    def stale(self) -> bool:
        """Whether the baseline is worse than what the code does now."""
        return any(limit.better for limit in self.limits)
