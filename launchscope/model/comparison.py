"""The Comparison: several measurements of one script, side by side, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from launchscope.model.profile import Metric, Profile
from launchscope.model.reason import Reason
from launchscope.model.recording import Cause, StrategyResult
from launchscope.model.run import Environment, Mode, Target
from launchscope.model.source_line import SourceLine
from launchscope.model.tensor_shape import TensorShape

COMPARISON_SCHEMA = "launchscope/comparison/2"

StrategyName = Literal["eager", "replay", "compile", "graphed"]
STRATEGIES: tuple[StrategyName, ...] = ("eager", "replay", "compile", "graphed")


@dataclass(frozen=True)
class PointFailure:
    """Why a point has no measurement, or not all of it. `exit_code` is the script's, if it ended
    with one of its own."""

    reason: Reason
    exit_code: int | None = None
    where: SourceLine | None = None
    hint: str | None = None

    @property
    def out_of_memory(self) -> bool:
        return self.reason.code == "script_out_of_memory"


@dataclass(frozen=True)
class Point:
    """One run of the script. `profile` None: nothing was measured, and `failure` says why.

    Samples per second are of whole iterations: measured eagerly, projected with the replay.
    """

    parameters: dict[str, str]
    target: Target
    batch_size: int | None = None
    profile: Profile | None = None
    failure: PointFailure | None = None
    samples_per_s: float | None = None
    replay_samples_per_s: float | None = None

    def value(self, key: str) -> float | None:
        """A metric of its Profile, None if there is none."""
        return None if self.profile is None else self.profile.value(key)


@dataclass(frozen=True)
class NearestPoint:
    """A measured batch size beside a crossover, in per cent of its iteration."""

    batch_size: int
    removable_pct: float
    exposed_pct: float | None = None


@dataclass(frozen=True)
class Crossover:
    """The batch size at which the gain falls under the threshold.

    `between`: at `batch_size`, interpolated over the logarithm of the batch size from `by`.
    `above`, `below`: the gain is on that side of the threshold at every size measured.
    `rising`: the gain rises with the batch size; `several`: it crosses more than once;
    `unknown`: fewer than two sizes have a gain. `confirmed`: replays measured at both
    neighbours lie on either side.
    """

    status: Literal["between", "above", "below", "rising", "several", "unknown"]
    threshold_pct: float
    parameters: dict[str, str] = field(default_factory=dict)  # the other ones, held fixed
    batch_size: float | None = None
    by: Literal["exposed", "removable"] | None = None
    pays: NearestPoint | None = None  # the nearest measured size that still pays
    pays_not: NearestPoint | None = None
    confirmed: bool = False


@dataclass(frozen=True)
class Trajectory:
    """How the losses (or outputs) of a way to adopt follow those of eager on the same seed.

    `largest_pct` is the largest difference of any step, relative to eager's value.
    """

    status: Literal["reference", "follows", "differs", "not_compared"]
    what: Literal["loss", "output", "update"] = "loss"
    steps: int = 0
    largest_pct: float | None = None
    tolerance_pct: float | None = None
    reason: Reason | None = None
    causes: tuple[Cause, ...] = ()  # why the replay differs


@dataclass(frozen=True)
class Rung:
    """One way to adopt graphs, measured in a process of its own.

    `iteration_ms` is measured for eager, compile and graphed; for replay it is the projection
    from the replay measured in place. `setup_ms` is what adopting cost before the first fast
    step. `memory_mib` is the most that torch reserved on the device.
    """

    mode: StrategyName
    iteration_ms: Metric | None = None
    step_ms: Metric | None = None
    speedup: float | None = None  # of the iteration, against the eager rung
    projected: bool = False
    setup_ms: float | None = None
    memory_mib: float | None = None
    graph_share_pct: float | None = None  # kernels of the step that ran inside graphs
    launches_per_step: float | None = None
    trajectory: Trajectory = Trajectory("not_compared")
    adoption: StrategyResult | None = None
    failure: PointFailure | None = None


@dataclass(frozen=True)
class Ladder:
    """Every way that was tried. `best` None: none is better than eager."""

    rungs: tuple[Rung, ...]
    best: StrategyName | None = None
    headline: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SizeCount:
    """How many of the observed steps had inputs of these shapes.

    `size` is the one dimension that varies, None where more than one does.
    """

    inputs: tuple[TensorShape, ...]
    steps: int
    size: int | None = None


@dataclass(frozen=True)
class Bucket:
    """One graph: serves steps of sizes `low` to `high`, all padded to `high`."""

    low: int
    high: int
    steps: int
    replay_ms: float
    memory_mib: float | None = None


@dataclass(frozen=True)
class BucketPlan:
    """Padded sizes with a graph each, and what they are predicted to give.

    Times are means over the steps of the most frequent structure of inputs, per iteration.
    `covered_pct` of all observed steps run a graph; the others stay eager. `growing`: sizes grow
    by one from step to step, and a static cache of `high` of the only bucket takes the place of
    padding.
    """

    kind: Literal["padded", "growing", "unplanned"]
    observed_steps: int
    sizes: tuple[SizeCount, ...]
    parameters: dict[str, str] = field(default_factory=dict)
    dimension: str | None = None
    buckets: tuple[Bucket, ...] = ()
    max_graphs: int | None = None
    memory_limit_mib: float | None = None
    covered_pct: float | None = None
    padding_pct: float | None = None  # of the padded size that is padding, over covered steps
    eager_ms: float | None = None
    planned_ms: float | None = None
    exact_ms: float | None = None  # with a graph for every size seen: what padding costs
    removable_pct: float | None = None
    memory_mib: float | None = None  # without buckets and above the limit: of the smallest graph
    recommendation: Literal["adopt_bucketed", "stay_eager", "inconclusive"] = "inconclusive"
    headline: str = ""
    phases: tuple[str, ...] = ()  # prefill and decode, told apart
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The one file of a comparison; its report is rendered from it."""

    target: Target  # as typed, before parameters were filled in
    environment: Environment
    mode: Mode
    axes: dict[str, tuple[str, ...]]
    points: tuple[Point, ...]
    threshold_pct: float = 15.0
    headline: str = ""
    crossovers: tuple[Crossover, ...] = ()
    ladders: tuple[Ladder, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = COMPARISON_SCHEMA
