"""What the runner writes: one result per pass, and the Recording of them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from launchscope.model.reason import Reason
from launchscope.model.target import Environment, Target

# Names of ranges in traces: the prefix of each step's, the profiler's calibration loop, and
# the eager step that is traced beside the replays, under the optimizer flags of the capture.
STEP_RANGE = "launchscope.step"
CALIBRATION_RANGE = "launchscope.calibration"
SAME_FLAGS_RANGE = "launchscope.same_flags"

ReplayStatus = Literal["measured", "what_if", "blocked", "failed", "skipped"]
# What a step is made of; a range is one of somebody else's trace.
# A step without a module call at its beginning begins at `zero_grad`, or at the "previous_end".
StepEvent = Literal[
    "forward", "backward", "optimizer", "marker", "range", "zero_grad", "previous_end"
]
# Of a training step: up to its first backward, up to the end of its last one, and the rest.
StepPart = Literal["forward", "backward", "optimizer"]
# "inference": a forward without gradients in a step that trains.
StepCallKind = Literal["zero_grad", "forward", "backward", "step", "inference"]
# Whose `step` reads a value: PyTorch's own code between the person's line and the op.
LibraryStep = Literal["optimizer", "lbfgs", "grad_scaler"]
# What keeps a script from the machine's GPU: a variable, a PyTorch without CUDA, or the script.
GpuObstacle = Literal["hidden", "build", "script"]
# Which kind of evidence a recording holds: a GPU run, a run without a GPU, a foreign trace.
Mode = Literal["gpu", "rehearsal", "trace"]


@dataclass(frozen=True, order=True)
class SourceLine:
    """`file` is relative to the working directory where it lies below it; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        """`train.py:41`, for people."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class TensorShape:
    """`dtype` as PyTorch names it, without the module: "float32"."""

    dims: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """`(8, 16) float32`, for people."""
        return f"{self.dims} {self.dtype}"


@dataclass(frozen=True)
class OptimizerChange:
    """`optimizer` is the name of its class, `flag` one of its arguments."""

    optimizer: str
    flag: str
    value: bool

    def __str__(self) -> str:
        """`AdamW capturable=True`, for people."""
        return f"{self.optimizer} {self.flag}={self.value}"


@dataclass(frozen=True)
class Schedule:
    """How many steps each pass takes; 0 leaves the pass out."""

    warmup: int = 10
    timing: int = 30
    trace: int = 5
    inspect: int = 3
    replay: int = 30
    verify: int = 4
    strategy: int = 0  # steps after a strategy is applied, before it is timed
    step_from: Literal["auto", "marker", "optimizer", "forward", "none"] = "auto"
    skip_steps: int = 0  # of the loop, before the warm-up
    wait_for: Literal["step", "optimizer"] = "step"
    full: bool = False
    threshold: float = 15.0  # percent of an iteration: the replayed loop goes on while it is open


@dataclass(frozen=True)
class StepKind:
    """One kind of step of a script that has several, such as prefill and decode."""

    name: str
    input: TensorShape | None  # of the outermost forward: its first tensor
    share_pct: float  # of the observed steps


@dataclass(frozen=True)
class CallFrame:
    """A line that was running in a function. `file` as in SourceLine."""

    file: str
    line: int
    function: str  # without the class; "<module>"


@dataclass(frozen=True)
class StepCall:
    """A call of the step, with the lines of the person's own code that led to it, innermost
    first. `package`: the installed one that the innermost line calls, and that makes the call."""

    what: StepCallKind
    frames: tuple[CallFrame, ...]
    package: str | None = None


@dataclass(frozen=True)
class StepBoundary:
    """Where a step begins and ends. `period` lists the events of one step, `names` the classes or
    ranges behind them. In a trace without such events a step is a number of `launches`, or the
    whole span ("none")."""

    boundary: Literal["period", "marker", "optimizer", "forward", "callable", "launches", "none"]
    period: tuple[StepEvent, ...]
    names: tuple[str, ...]
    scope: Literal["full_step", "forward_backward", "forward", "region"]
    source: SourceLine | None = None  # at which the step begins
    compiled: bool = False  # the script uses torch.compile
    warmup_steps: int = 0
    kinds: tuple[StepKind, ...] = ()
    closure: bool = False  # forward and backward run inside the optimizer's step
    launches: int | None = None  # in a period of launches
    calls: tuple[StepCall, ...] = ()  # of one step, each place once


@dataclass(frozen=True)
class TimingResult:
    """The timing pass: consecutive steps without a profiler and without synchronization inside.
    Host times are `time.perf_counter_ns`. GPU times count from the synchronization that opens the
    pass; they are empty without CUDA, and None where a step begins without an event."""

    host_open_ns: int
    host_begin_ns: tuple[int, ...]
    host_end_ns: tuple[int, ...]
    host_close_ns: int  # after the closing synchronization
    gpu_begin_ms: tuple[float | None, ...]
    gpu_end_ms: tuple[float, ...]
    kind: tuple[int, ...] = ()  # of each step, an index of `StepBoundary.kinds`
    complete: bool = True  # False: the script ended before the pass was full
    # Of data loaders, during the pass: how many, and the CPU time of them all.
    loader_workers: int = 0
    loader_cpu_ns: int = 0


@dataclass(frozen=True)
class Calibration:
    """What the profiler costs per launch on this machine: median host times of a tiny op."""

    plain_op_us: float  # without a profiler
    traced_op_us: float  # under the profiler as the trace ran
    ops: int
    # Under a profiler of the GPU side alone: what recording costs inside the launch call.
    launch_op_us: float | None = None

    @property
    def profiler_us_per_launch(self) -> float:
        """What recording adds to a launch call; an upper bound without `launch_op_us`."""
        traced = self.traced_op_us if self.launch_op_us is None else self.launch_op_us
        return max(0.0, traced - self.plain_op_us)


@dataclass(frozen=True)
class TraceResult:
    """The trace pass. `file` is a Kineto trace beside the results, gzipped or not; its steps are
    ranges named `launchscope.step#<i>`, and the first `drop_first` are not used."""

    file: str
    steps: int
    drop_first: int
    side_stream: bool
    calibration: Calibration | None = None
    kind: tuple[int, ...] = ()
    legacy_kernels: int = 0  # kernels that ran on the legacy default stream
    inputs: tuple[tuple[TensorShape, ...], ...] = ()  # of the forward that opens each step


@dataclass(frozen=True)
class LibraryLine:
    """A line of an installed library. `package` is what a script imports. None: not known."""

    where: SourceLine
    code: str | None = None  # the source text of the line
    package: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class BlockerRecord:
    """One operation that a capture cannot contain, with the user's line. `library` is the line that
    runs it, where that line is a library's: `where` leads there, or is the same one."""

    op: str  # for example "aten._local_scalar_dense"
    category: str  # sync | host_copy | dynamic_shape | rng | stream | optimizer | other
    where: SourceLine | None
    count: int  # per step
    code: str | None = None  # the source text of that line
    part: StepPart = "forward"  # of the step, in which it runs
    inside: LibraryStep | None = None  # None: the person's own code
    by_step: tuple[int, ...] = ()  # its count in each inspected step; none in an old recording
    library: LibraryLine | None = None
    compiled: bool = False  # torch.compile compiles what runs it


@dataclass(frozen=True)
class OpRecord:
    """One run of equal ops at one line of the user's, in dispatch order. `modules` are those whose
    forwards ran, the outermost first: ("GPT", "blocks.0", "attention")."""

    op: str
    where: SourceLine | None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpCount:
    """How often one line of the user's runs an op. A `where` of None: no such line is known."""

    op: str
    where: SourceLine | None
    count: int
    code: str | None = None  # the source text of that line


@dataclass(frozen=True)
class BetweenRecord:
    """The work between one step and the next: its device ops and what blocks. `copies` between
    host and device are only counted in a rehearsal; a trace has those of a GPU. Not `complete`:
    there was too much, such as a long evaluation, and what came last is missing."""

    ops: tuple[OpCount, ...] = ()
    blockers: tuple[BlockerRecord, ...] = ()
    copies: int = 0
    complete: bool = True


@dataclass(frozen=True)
class UnusedGpu:
    """Why a script used no GPU on a machine that has one."""

    obstacle: GpuObstacle


@dataclass(frozen=True)
class InspectResult:
    """The inspect pass: the ops of a few steps, with one entry per step in most fields. `inputs`
    are the tensors that the step reads but does not make, parameters and state excluded."""

    steps: int
    signatures: tuple[str, ...]  # hashes of the step's ops with shapes and dtypes
    inputs: tuple[tuple[TensorShape, ...], ...]
    device_ops: tuple[int, ...]  # their number without views and allocations
    blockers: tuple[BlockerRecord, ...]
    ops: tuple[OpRecord, ...] = ()  # device ops of the last step in dispatch order
    scheduler_live: bool = False
    scheduler_where: SourceLine | None = None
    optimizer_classes: tuple[str, ...] = ()
    input_tensors: int | None = None
    input_bytes: int | None = None
    # Parameters, and their groups, whose optimizer lacks the `capturable` that a capture needs.
    uncapturable_tensors: int = 0
    uncapturable_groups: int = 0
    forwards: tuple[int, ...] = ()  # per step; none in a recording that did not count them
    copies: tuple[int, ...] = ()  # per step of a rehearsal, between host and device
    between: tuple[BetweenRecord, ...] = ()  # before each step; none in an old recording
    # The device ops of each step, or of one if they do not differ; none in an old recording.
    step_ops: tuple[tuple[OpCount, ...], ...] = ()
    graph_breaks: int | None = None  # in all graphs that were compiled before the pass
    partial: bool = False  # autocast cast nothing, and its casts are not in the count
    unused_gpu: UnusedGpu | None = None
    openings: tuple[tuple[TensorShape, ...], ...] = ()  # what the forward that opens each step gets
    skipped_graphs: tuple[str, ...] = ()  # why Inductor made none of compiled code
    causes: tuple[Cause, ...] = ()  # in a rehearsal: what a graph of the first step would freeze
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayResult:
    """The replay pass: the step captured in place, and bursts of eager steps and replays in turn.
    Bursts are GPU times per step in ms, without the first step of each burst."""

    status: ReplayStatus
    reason: Reason | None = None
    where: SourceLine | None = None
    scope: Literal["full_step", "forward_backward", "forward", "region"] = "full_step"
    changes: tuple[OptimizerChange, ...] = ()
    eager_bursts: tuple[tuple[float, ...], ...] = ()
    replay_bursts: tuple[tuple[float, ...], ...] = ()
    host_replay_us: tuple[float, ...] = ()  # host time of each replay call
    capture_ms: float | None = None
    instantiate_ms: float | None = None
    first_replay_ms: float | None = None
    graph_nodes: int | None = None
    graph_memory_mib: float | None = None
    input_bytes: int | None = None  # of the inputs that a user would copy in per step
    input_tensors: int | None = None
    kind: int = 0
    refused: BlockerRecord | None = None  # what raised the error that ended the capture


@dataclass(frozen=True)
class ShapeBursts:
    """The bursts of eager steps and replays that begin with inputs of one shape."""

    inputs: tuple[TensorShape, ...]
    steps: int  # of this shape, among those that the pass saw
    eager_bursts: tuple[tuple[float, ...], ...] = ()
    replay_bursts: tuple[tuple[float, ...], ...] = ()
    # Elements in the inputs of each eager step; (): all have this shape.
    eager_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ShapesResult:
    """The replay_shapes pass: a graph for each of the shapes that came back, where shapes vary."""

    shapes: tuple[ShapeBursts, ...]
    steps: int  # that the pass saw
    reason: Reason | None = None  # why it ended with these
    # If no shape came back: replays of steps of a few sizes, the largest first, and eager steps of
    # all sizes.
    padded: tuple[ShapeBursts, ...] = ()
    sizes: tuple[int, ...] = ()  # elements in the inputs of each step that could be padded
    # The sizes grow by the same amount from step to step, as a key-value cache does. Only one is
    # measured then: that of a cache that is allocated once.
    growing: bool = False
    stubbed: int = 0  # blocking operations of a step that recorded results replaced


@dataclass(frozen=True)
class ReplayTraceResult:
    """Kernels of the replay: a Kineto trace of some replays, same naming as TraceResult."""

    file: str


CauseKind = Literal[
    "learning_rate", "hyperparameter", "scalar", "branch", "cross_step_state", "unjoined_stream"
]
# Where a tensor comes from that the step reads and that is not an input of the step.
TensorOrigin = Literal["host", "state", "previous_step"]


@dataclass(frozen=True)
class Cause:
    """Why a replay differs from the eager step. `before` is the value at capture, `after` a later
    one. In place of the eager `op` the captured step ran `captured_op`: None at its end, the same
    op if only the shapes differ."""

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
    """The verify pass: replay against eager, batch by batch. `update_diff` is
    ||p_replay - p_eager|| / ||p_eager - p_before||, where elements that Adam or its like updates
    count by the root of their mean squared gradient; of a step that changes no state, the
    difference of its outputs relative to their size. A cause can be known although the figures
    agree."""

    status: Literal["verified", "different", "skipped"]
    reason: Reason | None = None
    update_diff: tuple[float, ...] = ()
    noise_floor: tuple[float, ...] = ()  # `update_diff` of two replays of one batch
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class StrategyResult:
    """The unmodified script, run from the warm-up on under a strategy for adopting graphs.
    `values` are the losses of all backward calls, eager before `adopted_at`; in inference, the
    mean absolute outputs of the calls since it was adopted."""

    status: Literal["adopted", "failed"]
    reason: Reason | None = None
    where: SourceLine | None = None
    modules: tuple[str, ...] = ()
    setup_ms: float | None = None  # of the call that adopts
    settle_ms: tuple[float, ...] = ()  # host times of the synchronized steps after it
    values: tuple[float | None, ...] = ()  # None: NaN or infinity, which JSON lacks
    of: Literal["loss", "output"] = "loss"
    adopted_at: int = 0
    graphs: int | None = None  # that Dynamo compiled
    recompilations: int | None = None
    graph_breaks: int | None = None
    skipped_graphs: int | None = None  # how often Inductor made no graph
    reserved_mib: float | None = None


@dataclass(frozen=True)
class LoopResult:
    """The replayed_loop pass: the script's own loop in windows that alternate between eager steps
    and replays, the eager ones first. Times are of each window, in ms per iteration."""

    status: Literal["measured", "failed", "skipped"]
    reason: Reason | None = None
    eager_ms: tuple[float, ...] = ()
    replayed_ms: tuple[float, ...] = ()
    eager_step_ms: tuple[float, ...] = ()  # of the step within
    # Operations that the script runs itself in a replayed step, beside the graph that holds them.
    own_ops: int | None = None
    taken_back: int = 0  # replayed steps of the script, which have trained nothing


@dataclass(frozen=True)
class PassFailure:
    """A pass that was started and gave no result."""

    name: str
    reason: Reason
    where: SourceLine | None = None


@dataclass(frozen=True)
class Recording:
    """Everything the runner found; None: not run. The files of the results lie in `directory`."""

    target: Target
    environment: Environment
    mode: Mode
    schedule: Schedule
    directory: str = ""
    step: StepBoundary | None = None
    timing: TimingResult | None = None
    trace: TraceResult | None = None
    inspect: InspectResult | None = None
    replay: ReplayResult | None = None
    replay_shapes: ShapesResult | None = None
    replay_trace: ReplayTraceResult | None = None
    scope_forward_backward: ReplayResult | None = None
    scope_forward: ReplayResult | None = None
    verify: VerifyResult | None = None
    strategy: StrategyResult | None = None
    replayed_loop: LoopResult | None = None
    # Results of passes that have no field of their own, by pass name, as JSON data.
    other_results: dict[str, Any] = field(default_factory=dict)
    failures: tuple[PassFailure, ...] = ()
    notes: tuple[str, ...] = ()
    needs_legacy_stream: bool = False  # some kernels do: all of it was measured there
    runs: int = 1
    exit_code: int | None = None
    counting: int = 1  # COUNTING when it was recorded
    schema: str = "launchscope/recording/2"
