"""Measurements side by side: points of one script, two Profiles, or the ranks of one run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from launchscope.model.profile import Metric, Profile
from launchscope.model.ranks import Recommendation
from launchscope.model.reason import Reason
from launchscope.model.recording import Cause, Mode, SourceLine, StrategyResult
from launchscope.model.target import Environment, Target

StrategyName = Literal["eager", "replay", "compile", "graphed", "adopt"]
STRATEGIES: tuple[StrategyName, ...] = ("eager", "replay", "compile", "graphed", "adopt")


class PointFailure(Struct, frozen=True):
    """Why a point was not, or not completely, measured. `exit_code` is the script's own."""

    reason: Reason
    exit_code: int | None = None
    where: SourceLine | None = None
    hint: str | None = None

    @property
    def out_of_memory(self) -> bool:
        return self.reason.code == "script_out_of_memory"


class Point(Struct, frozen=True):
    """One run of the script. `profile` None: nothing was measured, and `failure` says why. Samples
    per second are of whole iterations, eager and with the replay."""

    target: Target
    batch_size: int | None = None
    profile: Profile | None = None
    failure: PointFailure | None = None
    samples_per_s: float | None = None
    replay_samples_per_s: float | None = None

    def value(self, key: str) -> float | None:
        """A metric of its Profile, None if there is none."""
        return None if self.profile is None else self.profile.value(key)


class Crossover(Struct, frozen=True):
    """The batch size at which the gain falls under the threshold, interpolated over its logarithm;
    None unless it falls once, between two measured sizes. `gains`: the sizes with what a replay
    removes of their iterations, in percent."""

    threshold_pct: float
    batch_size: float | None = None
    gains: tuple[tuple[int, float], ...] = ()


class Trajectory(Struct, frozen=True):
    """How the losses (or outputs) of a strategy follow those of eager on the same seed."""

    status: Literal["reference", "follows", "differs", "not_compared"]
    what: Literal["loss", "output", "update"] = "loss"
    steps: int = 0
    largest_pct: float | None = None  # difference of a step, relative to eager's value
    tolerance_pct: float | None = None
    reason: Reason | None = None
    causes: tuple[Cause, ...] = ()  # why the replay differs


class Strategy(Struct, frozen=True):
    """One strategy for adopting graphs, measured in a process of its own. An iteration that was not
    measured is `projected`: for `replay` from the replay measured in place, for `adopt` from the
    speedup of its own comparison with eager."""

    mode: StrategyName
    iteration_ms: Metric | None = None
    step_ms: Metric | None = None
    speedup: float | None = None  # of the iteration, against the eager strategy
    projected: bool = False
    setup_ms: float | None = None  # before the first fast step
    memory_mib: float | None = None  # the most that torch reserved on the device
    graph_share_pct: float | None = None  # kernels of the step that ran inside graphs
    launches_per_step: float | None = None
    trajectory: Trajectory = Trajectory("not_compared")
    result: StrategyResult | None = None
    failure: PointFailure | None = None


class Strategies(Struct, frozen=True):
    """Every strategy that was tried. `best` None: none is better than eager."""

    tried: tuple[Strategy, ...]
    best: StrategyName | None = None
    headline: str = ""
    batch_size: int | None = None


class Comparison(Struct, frozen=True):
    """The one file of a comparison; its report is rendered from it."""

    target: Target  # as typed, before the batch size was filled in
    environment: Environment
    mode: Mode
    points: tuple[Point, ...]
    threshold_pct: float = 15.0
    headline: str = ""
    crossover: Crossover | None = None
    strategies: tuple[Strategies, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = "launchscope/comparison/2"


class Side(Struct, frozen=True):
    """One of the two Profiles: what was measured, and its step in words."""

    name: str
    device: str | None
    step: str
    recommendation: Recommendation | None


class MetricChange(Struct, frozen=True):
    """A metric on both sides; None where it was not measured. `beyond_spread` None: unknown."""

    key: str
    unit: str
    before: float | None
    after: float | None
    beyond_spread: bool | None = None

    @property
    def change_pct(self) -> float | None:
        """The change in percent of `before`; None where that is 0 or a value is not known."""
        if self.before is None or self.after is None or not self.before:
            return None
        return 100.0 * (self.after - self.before) / abs(self.before)


class KernelDifference(Struct, frozen=True):
    """A kernel with another count or time per step on the two sides; 0 where it is missing."""

    name: str
    state: Literal["appeared", "vanished", "changed"]
    before_count: float
    after_count: float
    before_us: float
    after_us: float

    @property
    def change_us(self) -> float:
        return self.after_us - self.before_us


class Difference(Struct, frozen=True):
    """Metrics in the Profile's order; kernels by the change of their GPU time."""

    before: Side
    after: Side
    metrics: tuple[MetricChange, ...]
    kernels: tuple[KernelDifference, ...]
    same_kernels: int
    notes: tuple[str, ...] = ()
    schema: str = "launchscope/difference/1"
