"""The values that travel between layers. Standard library only.

Everything here is frozen, holds plain data, and survives a round trip through JSON.
Durations carry their unit in the name. None means "not measured".
"""

from __future__ import annotations

# ruff: noqa: I001 - one statement per module, not one per name
from launchscope.model.adoption import (
    Adoption as Adoption,
    AdoptionOutcome as AdoptionOutcome,
    Covered as Covered,
    Fix as Fix,
)
from launchscope.model.comparison import (
    STRATEGIES as STRATEGIES,
    Comparison as Comparison,
    Crossover as Crossover,
    Difference as Difference,
    KernelDifference as KernelDifference,
    MetricChange as MetricChange,
    NearestPoint as NearestPoint,
    Point as Point,
    PointFailure as PointFailure,
    Side as Side,
    Strategies as Strategies,
    Strategy as Strategy,
    StrategyName as StrategyName,
    Trajectory as Trajectory,
)
from launchscope.model.gate import (
    COUNTING as COUNTING,
    Change as Change,
    ChangeKind as ChangeKind,
    CheckResult as CheckResult,
    LimitCheck as LimitCheck,
    LimitSource as LimitSource,
    Outcome as Outcome,
    TimedFigure as TimedFigure,
)
from launchscope.model.launching import (
    Extreme as Extreme,
    Histogram as Histogram,
    Histograms as Histograms,
    OverheadRow as OverheadRow,
    QueueDepth as QueueDepth,
    StreamRow as StreamRow,
)
from launchscope.model.profile import (
    Basis as Basis,
    BetweenSteps as BetweenSteps,
    Blocker as Blocker,
    Correctness as Correctness,
    DeviceRow as DeviceRow,
    Facts as Facts,
    Finding as Finding,
    IterationSource as IterationSource,
    KernelChange as KernelChange,
    KernelRow as KernelRow,
    Metric as Metric,
    OpRow as OpRow,
    PeriodicWork as PeriodicWork,
    Profile as Profile,
    Replay as Replay,
    ScopeReplay as ScopeReplay,
    ShapeReplay as ShapeReplay,
    Severity as Severity,
    ShapeSignature as ShapeSignature,
    Shapes as Shapes,
    StepGroup as StepGroup,
    Verdict as Verdict,
    WorkComparison as WorkComparison,
)
from launchscope.model.ranks import (
    RankRow as RankRow,
    Ranks as Ranks,
    Recommendation as Recommendation,
    Skew as Skew,
)
from launchscope.model.reason import (
    Reason as Reason,
    ReasonCode as ReasonCode,
    RefusalReason as RefusalReason,
)
from launchscope.model.optimizers import (
    CAPTURE_FLAGS as CAPTURE_FLAGS,
    CaptureFlags as CaptureFlags,
    OptimizerFlag as OptimizerFlag,
)
from launchscope.model.recording import (
    BetweenRecord as BetweenRecord,
    BlockerRecord as BlockerRecord,
    CALIBRATION_RANGE as CALIBRATION_RANGE,
    Calibration as Calibration,
    CallFrame as CallFrame,
    Cause as Cause,
    CauseKind as CauseKind,
    GpuObstacle as GpuObstacle,
    InspectResult as InspectResult,
    LibraryLine as LibraryLine,
    LibraryStep as LibraryStep,
    LoopResult as LoopResult,
    Mode as Mode,
    OpCount as OpCount,
    OpRecord as OpRecord,
    OptimizerChange as OptimizerChange,
    PassFailure as PassFailure,
    Recording as Recording,
    ReplayResult as ReplayResult,
    ReplayStatus as ReplayStatus,
    ReplayTraceResult as ReplayTraceResult,
    ShapeBursts as ShapeBursts,
    ShapesResult as ShapesResult,
    SAME_FLAGS_RANGE as SAME_FLAGS_RANGE,
    STEP_RANGE as STEP_RANGE,
    Schedule as Schedule,
    SourceLine as SourceLine,
    StepBoundary as StepBoundary,
    StepCall as StepCall,
    StepCallKind as StepCallKind,
    StepEvent as StepEvent,
    StepKind as StepKind,
    StepPart as StepPart,
    StrategyResult as StrategyResult,
    TensorOrigin as TensorOrigin,
    TensorShape as TensorShape,
    TimingResult as TimingResult,
    TraceResult as TraceResult,
    UnusedGpu as UnusedGpu,
    VerifyResult as VerifyResult,
)
from launchscope.model.shown import (
    Shown as Shown,
    ShownResult as ShownResult,
)
from launchscope.model.target import (
    Environment as Environment,
    Target as Target,
)
from launchscope.model.timeline import (
    IdleCause as IdleCause,
    IdleTime as IdleTime,
    Label as Label,
    LabelKind as LabelKind,
    Lane as Lane,
    LaneKind as LaneKind,
    StepTimeline as StepTimeline,
    Timelines as Timelines,
)
