"""The Profile: what analysis makes of a Recording, and the rules of the Profile."""

from __future__ import annotations

from dataclasses import replace
from statistics import median, quantiles
from typing import Literal

from msgspec import Struct

from launchscope.model.ranks import Ranks, Recommendation
from launchscope.model.reason import Reason
from launchscope.model.recording import (
    Cause,
    LibraryLine,
    LibraryStep,
    Mode,
    OptimizerChange,
    ReplayStatus,
    SourceLine,
    StepBoundary,
    TensorShape,
    UnusedGpu,
)
from launchscope.model.target import Environment, Target
from launchscope.model.timeline import Timelines

Basis = Literal["measured", "what_if", "predicted", "structural"]
# Where the iteration under replay comes from: windows of the script's own loop, the eager iteration
# less what the measured replay takes off the step, or a replay that a trace predicts.
IterationSource = Literal["measured", "subtracted", "predicted"]
Severity = Literal["info", "advice", "warning", "error"]


class Metric(Struct, frozen=True):
    """One figure. `value` None means not measured; `exact` that all samples agree. An estimate
    lies between `low` and `high`; other figures have no spread but that of their samples."""

    value: float | int | None
    unit: str
    exact: bool = False
    samples: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    source: IterationSource | None = None  # of an iteration under replay

    @classmethod
    def of_samples(cls, samples: list[float] | tuple[float, ...], unit: str) -> Metric:
        """Median of timed samples; not measured when there are none."""
        kept = tuple(float(s) for s in samples)
        return cls(median(kept) if kept else None, unit, False, kept)

    @property
    def iqr(self) -> float | None:
        """Interquartile range of the samples (linear interpolation); None below four."""
        if len(self.samples) < 4:
            return None
        first, _, third = quantiles(self.samples, n=4, method="inclusive")
        return third - first


class ShapeSignature(Struct, frozen=True):
    """`forwards` None: how often such a step calls its model is not known."""

    steps: int
    inputs: tuple[TensorShape, ...]
    forwards: int | None = None


class Shapes(Struct, frozen=True):
    """`stable` None: shapes were not inspected."""

    stable: bool | None
    signatures: tuple[ShapeSignature, ...] = ()


class Blocker(Struct, frozen=True):
    """As a BlockerRecord."""

    op: str
    where: SourceLine | None
    count: int
    category: str = "other"
    code: str | None = None
    inside: LibraryStep | None = None  # None: the person's own code
    library: LibraryLine | None = None


class KernelChange(Struct, frozen=True):
    name: str
    count: int
    total_us: float


class WorkComparison(Struct, frozen=True):
    """Whether the replay ran the GPU work eager ran. `same` None: not compared."""

    same: bool | None
    added: tuple[KernelChange, ...] = ()
    removed: tuple[KernelChange, ...] = ()


class Correctness(Struct, frozen=True):
    status: Literal["verified", "different", "not_checked"] = "not_checked"
    steps: int = 0
    max_update_diff: float | None = None
    reason: Reason | None = None
    causes: tuple[Cause, ...] = ()
    noise_floor: float | None = None  # the same difference between two replays of one batch

    @property
    def distinct_causes(self) -> tuple[Cause, ...]:
        """The first of the causes that differ in nothing but the value of a later step."""
        first = {replace(c, before=None, after=None): c for c in reversed(self.causes)}
        return tuple(first.values())[::-1]


class ScopeReplay(Struct, frozen=True):
    """What capturing only a first part of the step gives, with the rest of it left eager. Times
    are of that part; `removable_pct` is of the iteration."""

    scope: str  # forward_backward | forward
    status: ReplayStatus
    reason: Reason | None = None
    eager_ms: float | None = None
    replay_ms: float | None = None
    removable_pct: float | None = None


class ShapeReplay(Struct, frozen=True):
    """What a graph gives the steps that begin with inputs of this shape. Times are of the step."""

    inputs: tuple[TensorShape, ...]
    share_pct: float  # of the steps
    eager_ms: float
    replay_ms: float
    least_saved_ms: float = 0.0  # between the bursts that differ least
    most_saved_ms: float = 0.0


class Replay(Struct, frozen=True):
    status: ReplayStatus
    reason: Reason | None = None
    where: SourceLine | None = None
    scope: str | None = None
    changes: tuple[OptimizerChange, ...] = ()
    work: WorkComparison = WorkComparison(None)
    correct: Correctness = Correctness()
    scopes: tuple[ScopeReplay, ...] = ()  # smaller ones, where the whole step was not captured
    shapes: tuple[ShapeReplay, ...] = ()  # where they vary: those that come back
    # Where none comes back: the steps whose inputs are padded to these, in ascending order.
    padded: tuple[ShapeReplay, ...] = ()
    padding_pct: float | None = None  # of the padded inputs' elements, that is padding


class Finding(Struct, frozen=True):
    """What one rule has to say. `library` is the line of an installed library to which `where`
    leads."""

    code: str
    severity: Severity
    title: str
    advice: str
    where: SourceLine | None = None
    library: SourceLine | None = None


class Verdict(Struct, frozen=True):
    recommendation: Recommendation
    basis: Basis
    headline: str  # one sentence, what to do and what it gives
    speedup: float | None = None  # of the step
    iteration_speedup: float | None = None
    removable_pct: float | None = None  # of the iteration
    confidence: Literal["high", "medium", "low"] = "low"
    because: tuple[str, ...] = ()  # finding codes
    instructions: tuple[str, ...] = ()  # one step of the person's each, in order


class KernelRow(Struct, frozen=True):
    """A kernel's share of one step: launches per step and microseconds per step."""

    name: str
    count: float
    total_us: float
    where: SourceLine | None = None


class OverheadRow(Struct, frozen=True):
    """What one line, module or operator launched. `launches` are of kernels, per step, without
    graphs; `idle_ms` is its part of `launch_overhead_ms`: a gap belongs to the launch that ended
    it. Both sum over all rows to the metric (the counts to their mean).

    `known` rows have a name. Of the others there is one each: what is left out where there are too
    many, launches between steps (not in any step's count), and those behind which no line, module
    or operator is known.
    """

    name: str
    launches: float
    idle_ms: float | None  # None: not measured
    where: SourceLine | None = None
    stack: tuple[str, ...] = ()  # of a module: those around it and itself, the outermost first
    part: Literal["known", "others", "between_steps", "unknown"] = "known"


class DeviceRow(Struct, frozen=True):
    """What one process did on one GPU over a whole trace; idle is between its first and last work.
    `process` None: unknown. `in_figures`: the Profile's figures are of it."""

    device: int
    process: int | None
    launches: int
    kernels: int
    busy_ms: float
    idle_ms: float
    in_figures: bool


class OpRow(Struct, frozen=True):
    """How often one step runs a device op at one of the person's lines."""

    name: str  # "aten.mul"
    count: int
    where: SourceLine | None = None


class PeriodicWork(Struct, frozen=True):
    """Work between steps that was seen before only some of the observed steps. `counts` are of one
    occurrence, by metric. `period` is in iterations; None: not seen often enough to know it."""

    seen: int
    observed: int
    period: int | None
    counts: dict[str, int]
    where: tuple[SourceLine, ...] = ()


class BetweenSteps(Struct, frozen=True):
    """What runs before each of the `observed` steps, after the one before it."""

    observed: int = 0
    ops: tuple[OpRow, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    periodic: tuple[PeriodicWork, ...] = ()


class Facts(Struct, frozen=True):
    """What rules, reports and the gate need besides metrics; None: not known. Shares are of GPU
    time unless they say otherwise; counts are per step."""

    # Of the run.
    timing_steps: int | None = None  # of the timing pass
    iteration_check_pct: float | None = None  # |wall time - event clock| of the timing pass
    has_pass_failures: bool | None = None
    side_stream: bool | None = None  # whether the traced steps ran on a stream of ours
    rank: int | None = None  # of the trace's process in a run of several

    # Of the step.
    scheduler_live: bool | None = None
    scheduler_where: SourceLine | None = None
    optimizer_classes: tuple[str, ...] | None = None
    lacks_capturable: bool = False  # an optimizer whose step PyTorch refuses in a capture so
    skipped_graphs: tuple[str, ...] = ()  # why Inductor made none of compiled code
    amp_left_out: bool | None = None  # of a rehearsal: autocast cast nothing in it
    unused_gpu: UnusedGpu | None = None  # of a rehearsal: the machine has a GPU

    # Of the trace.
    join_coverage_pct: float | None = None  # of the device work, joined to its launch
    median_kernel_us: float | None = None
    large_kernel_share_pct: float | None = None
    graph_kernel_share_pct: float | None = None  # of the kernels, launched by graphs
    captured_launches: int | None = None  # in the smallest capture of a graph that the trace shows
    has_operators: bool | None = None  # whether a trace has PyTorch's operators
    needs_legacy_stream: bool | None = None
    legacy_stream_kernels: int | None = None
    unsure_idle_pct: float | None = None  # of the iteration: a replay may remove or keep it
    unusual_idle_pct: float | None = None  # ... and removes, unless the host does other work then
    # ... and removes, unless it needs what the host does outside of operators; at least the last.
    outside_idle_pct: float | None = None
    busy_exceeds_interval_pct: float | None = None  # traced busy time over the untraced iteration
    waits_exceed_idle_pct: float | None = None  # of the iteration: its idle time has no known parts

    # Of the gain.
    gain_unknown: Reason | None = None
    removable_step_pct: float | None = None  # of the step
    # What the workers of data loaders compute per step, by their number: the least iteration.
    loader_ms: float | None = None
    loader_workers: int | None = None

    # Of several iterations, of several processes, or of a baseline.
    processes: int | None = None
    ranges: dict[str, tuple[float, float]] | None = None  # of counts by metric, where they differ
    blocker_ranges: dict[str, tuple[int, int]] | None = None  # by op, likewise


class Profile(Struct, frozen=True):
    """The one file of a measurement; every report is rendered from it."""

    target: Target
    environment: Environment
    mode: Mode
    step: StepBoundary | None
    metrics: dict[str, Metric]
    shapes: Shapes
    blockers: tuple[Blocker, ...]
    replay: Replay
    verdict: Verdict | None = None
    findings: tuple[Finding, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    timelines: Timelines | None = None  # None: no step was traced
    ops: tuple[OpRow, ...] = ()  # of the inspected step, in the order in which they first ran
    between: BetweenSteps | None = None  # None: not observed
    devices: tuple[DeviceRow, ...] = ()  # of a trace file
    # Of the traced steps; None: not recorded, or nothing to show.
    overhead_by_line: tuple[OverheadRow, ...] | None = None
    overhead_by_module: tuple[OverheadRow, ...] | None = None
    launches_by_operator: tuple[OverheadRow, ...] | None = None
    ranks: Ranks | None = None  # of a run of several, all together
    notes: tuple[str, ...] = ()
    facts: Facts = Facts()
    threshold_pct: float = 15.0
    expected_steps: int | None = None
    counting: int = 1  # of the Recording
    schema: str = "launchscope/profile/2"

    def value(self, key: str) -> float | None:
        """The value of a metric, None if it is absent or was not measured."""
        metric = self.metrics.get(key)
        return None if metric is None or metric.value is None else float(metric.value)

    @property
    def iteration_source(self) -> IterationSource | None:
        """Where the iteration under replay comes from; None where it is not known."""
        metric = self.metrics.get("replayed_iteration_ms")
        return None if metric is None or metric.value is None else metric.source
