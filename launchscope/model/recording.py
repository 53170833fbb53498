"""What the runner writes: one result per pass, and the Recording of them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from launchscope.model.optimizer_change import OptimizerChange
from launchscope.model.reason import Reason
from launchscope.model.run import Environment, Mode, Schedule, Target
from launchscope.model.source_line import SourceLine
from launchscope.model.tensor_shape import TensorShape

RECORDING_SCHEMA = "launchscope/recording/2"

# Names of ranges in traces: the prefix of each step's, the profiler's calibration loop, and
# the eager step that is traced beside the replays, under the optimizer flags of the capture.
STEP_RANGE = "launchscope.step"
CALIBRATION_RANGE = "launchscope.calibration"
SAME_FLAGS_RANGE = "launchscope.same_flags"

ReplayStatus = Literal["measured", "what_if", "blocked", "failed", "skipped"]
# Of a training step: up to its first backward, up to the end of its last one, and the rest.
StepPart = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True)
class StepKind:
    """One kind of step of a script that has several, such as prefill and decode."""

    name: str
    input: TensorShape | None  # of the outermost forward: its first tensor
    share_pct: float  # of the observed steps


@dataclass(frozen=True)
class StepBoundary:
    """Where a step begins and ends, as found in the warm-up.

    `period` lists the events of one step in order ("forward", "backward",
    "optimizer", "marker"); `names` the class names behind them, index by index. Of a trace it
    is "range" with the range's name, "launches" for a period found in the launches, or
    "none": the whole span as one step.
    """

    boundary: Literal["period", "marker", "optimizer", "forward", "callable", "launches", "none"]
    period: tuple[str, ...]
    names: tuple[str, ...]
    scope: Literal["full_step", "forward_backward", "forward", "region"]
    source: SourceLine | None = None  # at which the step begins
    compiled: bool = False  # the script uses torch.compile
    warmup_steps: int = 0
    kinds: tuple[StepKind, ...] = ()
    closure: bool = False  # forward and backward run inside the optimizer's step


@dataclass(frozen=True)
class TimingResult:
    """The timing pass: N consecutive steps, no profiler, no synchronisation inside.

    All host times are `time.perf_counter_ns` of the child. GPU times are CUDA event
    times in ms after an event recorded right after the synchronisation that opens the
    pass; empty without CUDA, None at the begin of a step that has no event there. `kind[i]`
    indexes `StepBoundary.kinds`, 0 if there are none.
    """

    host_open_ns: int
    host_begin_ns: tuple[int, ...]
    host_end_ns: tuple[int, ...]
    host_close_ns: int  # after the closing synchronisation
    gpu_begin_ms: tuple[float | None, ...]
    gpu_end_ms: tuple[float, ...]
    kind: tuple[int, ...] = ()
    complete: bool = True  # False: the script ended before the pass was full


@dataclass(frozen=True)
class Calibration:
    """What the profiler itself costs per launch on this machine, from one tiny in-place op.

    Medians over repeats, microseconds of host time per op: without a profiler, under the
    profiler as the trace ran, and under one that records the GPU side alone. The last tells
    what lies inside the launch call; the rest of the difference lies around it.
    """

    plain_op_us: float
    traced_op_us: float
    ops: int
    launch_op_us: float | None = None

    @property
    def profiler_us_per_launch(self) -> float:
        """What recording adds to a launch call; an upper bound without `launch_op_us`."""
        traced = self.traced_op_us if self.launch_op_us is None else self.launch_op_us
        return max(0.0, traced - self.plain_op_us)


@dataclass(frozen=True)
class TraceResult:
    """The trace pass. `file` is a Kineto trace beside the results, gzipped or not.

    Steps are ranges named `launchscope.step#<i>`; the first `drop_first` are not used.
    """

    file: str
    steps: int
    drop_first: int
    side_stream: bool
    calibration: Calibration | None = None
    kind: tuple[int, ...] = ()
    legacy_kernels: int = 0  # kernels that ran on the legacy default stream
    inputs: tuple[tuple[TensorShape, ...], ...] = ()  # of the forward that opens each step


@dataclass(frozen=True)
class BlockerRecord:
    """One operation that a capture cannot contain, with the user's line."""

    op: str  # for example "aten._local_scalar_dense"
    category: str  # sync | host_copy | dynamic_shape | rng | stream | optimizer | other
    where: SourceLine | None
    count: int  # per step
    code: str | None = None  # the source text of that line
    part: StepPart = "forward"  # of the step, in which it stands


@dataclass(frozen=True)
class OpRecord:
    """One run of equal ops at one line of the user's, in dispatch order."""

    op: str
    where: SourceLine | None


@dataclass(frozen=True)
class HostInput:
    """A tensor on the host that a line of the step copies to the device."""

    expression: str  # in the source: "x.to(device)"
    tensor: TensorShape


@dataclass(frozen=True)
class InspectResult:
    """The inspect pass: the ops of a few steps.

    `signatures[i]` hashes step i's ops with shapes and dtypes; `inputs[i]` are the tensors
    that the step reads but does not make, parameters and state excluded.
    `device_ops[i]` counts ops that run on the device, views and allocations excluded.
    `ops` is the op order of the last step, one entry per device op.
    """

    steps: int
    signatures: tuple[str, ...]
    inputs: tuple[tuple[TensorShape, ...], ...]
    device_ops: tuple[int, ...]
    blockers: tuple[BlockerRecord, ...]
    ops: tuple[OpRecord, ...] = ()
    scheduler_live: bool = False
    scheduler_where: SourceLine | None = None
    optimizer_classes: tuple[str, ...] = ()
    input_tensors: int | None = None
    input_bytes: int | None = None
    rng_used: bool = False
    # Parameters, and their groups, whose optimizer lacks the `capturable` that a capture needs.
    uncapturable_tensors: int = 0
    uncapturable_groups: int = 0
    forwards: tuple[int, ...] = ()  # per step; none in a recording that did not count them
    host_inputs: tuple[HostInput, ...] = ()
    partial: bool = False  # autocast or GradScaler did nothing and are not in the count
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayResult:
    """The replay pass: the step captured in place and replayed against eager, in turn.

    `eager_bursts[i]` and `replay_bursts[i]` are GPU times per step in ms, the first of each
    burst already dropped. `host_replay_us` is the host time of one replay call.
    """

    status: ReplayStatus
    reason: Reason | None = None
    where: SourceLine | None = None
    scope: Literal["full_step", "forward_backward", "forward", "region"] = "full_step"
    changes: tuple[OptimizerChange, ...] = ()
    eager_bursts: tuple[tuple[float, ...], ...] = ()
    replay_bursts: tuple[tuple[float, ...], ...] = ()
    host_replay_us: tuple[float, ...] = ()
    capture_ms: float | None = None
    instantiate_ms: float | None = None
    first_replay_ms: float | None = None
    graph_nodes: int | None = None
    graph_memory_mib: float | None = None
    input_bytes: int | None = None  # of the inputs that a user would copy in per step
    input_tensors: int | None = None
    kind: int = 0


@dataclass(frozen=True)
class ReplayTraceResult:
    """Kernels of the replay: a Kineto trace of `replays` replays, same naming as TraceResult."""

    file: str
    replays: int


CauseKind = Literal[
    "learning_rate",
    "hyperparameter",
    "scalar",
    "branch",
    "cross_step_state",
    "unjoined_stream",
]
# Where a tensor comes from that the step reads and that is no input of it.
TensorOrigin = Literal["host", "state", "previous_step"]


@dataclass(frozen=True)
class Cause:
    """Why a replay is not eager's step. `before`: the value at capture; `after`: a later one.

    `op` ran in the eager step; `captured_op` ran in its place in the captured one. One of a
    branch is None if that step had no further op; both are equal if only the shapes differ.
    """

    kind: CauseKind
    where: SourceLine | None = None
    before: float | None = None
    after: float | None = None
    optimizer: str | None = None  # the class whose hyperparameter it is
    hyperparameter: str | None = None  # as in `param_groups`: "lr"
    op: str | None = None
    captured_op: str | None = None
    tensor: TensorShape | None = None  # that a replay goes on reading
    origin: TensorOrigin | None = None


@dataclass(frozen=True)
class VerifyResult:
    """The verify pass: replay against eager over recorded batches.

    `update_diff[i]` is ||p_replay - p_eager|| / ||p_eager - p_before|| for batch i; of a step
    that changes no state, the same for its outputs, relative to their size. `noise_floor[i]`
    is that of two replays of batch i. A cause can be known although the figures agree.
    """

    status: Literal["verified", "different", "skipped"]
    reason: Reason | None = None
    update_diff: tuple[float, ...] = ()
    noise_floor: tuple[float, ...] = ()
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class SizesResult:
    """The sizes pass: shapes of many steps, how long each took, and the memory it needed.

    `inputs[i]` are the tensors handed to the forward that opens step i. `step_ms` and
    `iteration_ms` are on the GPU's clock, `iteration_ms[i]` from the end of step i - 1 (the
    first is None); `peak_mib[i]` is the most memory the step held beyond what it began with,
    asked of some steps, which then are not timed. All three are empty without CUDA.
    """

    inputs: tuple[tuple[TensorShape, ...], ...]
    step_ms: tuple[float | None, ...] = ()
    iteration_ms: tuple[float | None, ...] = ()
    peak_mib: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class StrategyResult:
    """A script run under a way to adopt graphs, from the warm-up on, without an edit to it.

    `values[i]` is the loss of the i-th backward since the script began, those before
    `adopted_at` as the script has them; of inference, the mean absolute output of each call
    since it was adopted; None where it is no finite number. `settle_ms` are host times of the
    steps after it, each waited for. `skips` are Inductor's own words for what it did not put
    into graphs, with their counts.
    """

    mode: str
    status: Literal["adopted", "failed"]
    reason: Reason | None = None
    where: SourceLine | None = None
    modules: tuple[str, ...] = ()
    setup_ms: float | None = None  # of the call that adopts
    settle_ms: tuple[float, ...] = ()
    values: tuple[float | None, ...] = ()  # JSON has neither NaN nor infinity
    of: Literal["loss", "output"] = "loss"
    adopted_at: int = 0
    graphs: int | None = None  # that Dynamo compiled
    recompilations: int | None = None
    graph_breaks: int | None = None
    skips: tuple[tuple[str, int], ...] = ()
    reserved_mib: float | None = None
    device_used_mib: float | None = None


@dataclass(frozen=True)
class PassFailure:
    """A pass that was started and gave no result."""

    name: str
    reason: Reason
    where: SourceLine | None = None


@dataclass(frozen=True)
class Recording:
    """Everything the runner found, in the order the passes ran; None = not run.

    `directory` is where the files named by the results lie.
    """

    target: Target
    environment: Environment
    mode: Mode
    schedule: Schedule
    directory: str
    step: StepBoundary | None = None
    timing: TimingResult | None = None
    trace: TraceResult | None = None
    inspect: InspectResult | None = None
    replay: ReplayResult | None = None
    replay_trace: ReplayTraceResult | None = None
    scope_forward_backward: ReplayResult | None = None
    scope_forward: ReplayResult | None = None
    verify: VerifyResult | None = None
    sizes: SizesResult | None = None
    adoption: StrategyResult | None = None
    timing_second: TimingResult | None = None  # fewer steps, at the end of the run
    # Results of passes that have no field of their own, by pass name, as JSON data.
    other_results: dict[str, Any] = field(default_factory=dict)
    failures: tuple[PassFailure, ...] = ()
    notes: tuple[str, ...] = ()
    needs_legacy_stream: bool = False  # some kernels do: all of it was measured there
    runs: int = 1
    exit_code: int | None = None
    schema: str = RECORDING_SCHEMA
