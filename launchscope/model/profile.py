"""The Profile: what analysis makes of a Recording, and the rules of the Profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median, quantiles
from typing import Any, Literal

from launchscope.model.facts import Facts
from launchscope.model.optimizer_change import OptimizerChange
from launchscope.model.reason import Reason
from launchscope.model.recording import Cause, ReplayStatus, StepBoundary
from launchscope.model.run import Environment, Mode, Target
from launchscope.model.source_line import SourceLine
from launchscope.model.tensor_shape import TensorShape

PROFILE_SCHEMA = "launchscope/profile/2"

Recommendation = Literal[
    "adopt",
    "adopt_after_fixes",
    "adopt_bucketed",
    "already_graphed",
    "stay_eager",
    "unsafe",
    "inconclusive",
]
Basis = Literal["measured", "what_if", "predicted", "structural"]
Severity = Literal["info", "advice", "warning", "error"]


@dataclass(frozen=True)
class Metric:
    """One figure. `value` None means not measured; `exact` that all samples agree.

    An estimate lies between `low` and `high`; None for a figure whose only spread is that of its
    samples.
    """

    value: float | int | None
    unit: str
    exact: bool = False
    samples: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None

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


@dataclass(frozen=True)
class ShapeSignature:
    """`forwards` None: how often such a step calls its model is not known."""

    steps: int
    inputs: tuple[TensorShape, ...]
    forwards: int | None = None


@dataclass(frozen=True)
class Shapes:
    """`stable` None: shapes were not inspected."""

    stable: bool | None
    signatures: tuple[ShapeSignature, ...] = ()


@dataclass(frozen=True)
class Blocker:
    op: str
    where: SourceLine | None
    count: int
    advice: str
    category: str = "other"
    code: str | None = None


@dataclass(frozen=True)
class KernelChange:
    name: str
    count: int
    total_us: float


@dataclass(frozen=True)
class Work:
    """Whether the replay ran the GPU work eager ran. `same` None: not compared."""

    same: bool | None
    added: tuple[KernelChange, ...] = ()
    removed: tuple[KernelChange, ...] = ()


@dataclass(frozen=True)
class Correctness:
    status: Literal["verified", "different", "not_checked"] = "not_checked"
    steps: int = 0
    max_update_diff: float | None = None
    reason: Reason | None = None
    causes: tuple[Cause, ...] = ()

    @property
    def distinct_causes(self) -> tuple[Cause, ...]:
        """The first of the causes that differ in nothing but the value of a later step."""
        first = {replace(c, before=None, after=None): c for c in reversed(self.causes)}
        return tuple(first.values())[::-1]


@dataclass(frozen=True)
class ScopeReplay:
    """What capturing only a first part of the step gives, with the rest of it left eager.

    `eager_ms` and `replay_ms` are of that part; `removable_pct` is of the iteration.
    """

    scope: str  # forward_backward | forward
    status: ReplayStatus
    reason: Reason | None = None
    eager_ms: float | None = None
    replay_ms: float | None = None
    removable_pct: float | None = None


@dataclass(frozen=True)
class Replay:
    status: ReplayStatus
    reason: Reason | None = None
    where: SourceLine | None = None
    scope: str | None = None
    changes: tuple[OptimizerChange, ...] = ()
    work: Work = Work(None)
    correct: Correctness = Correctness()
    scopes: tuple[ScopeReplay, ...] = ()  # smaller ones, where the whole step was not captured


@dataclass(frozen=True)
class Finding:
    """What one rule has to say. `evidence` holds the numbers it rests on."""

    code: str
    severity: Severity
    title: str
    advice: str
    where: SourceLine | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    recommendation: Recommendation
    basis: Basis
    headline: str  # one sentence, what to do and what it gives
    speedup: float | None = None  # of the step
    iteration_speedup: float | None = None
    removable_pct: float | None = None  # of the iteration
    confidence: Literal["high", "medium", "low"] = "low"
    because: tuple[str, ...] = ()  # finding codes
    instructions: tuple[str, ...] = ()  # one step of the person's each, in order


@dataclass(frozen=True)
class KernelRow:
    """A kernel's share of one step: launches per step and microseconds per step."""

    name: str
    count: float
    total_us: float
    where: SourceLine | None = None


@dataclass(frozen=True)
class OpRow:
    """How often one step runs a device op at one of the person's lines."""

    name: str  # "aten.mul"
    count: int
    where: SourceLine | None = None


@dataclass(frozen=True)
class Profile:
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
    ops: tuple[OpRow, ...] = ()  # of the inspected step, in the order in which they first ran
    notes: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)
    threshold_pct: float = 15.0
    expected_steps: int | None = None
    schema: str = PROFILE_SCHEMA

    def value(self, key: str) -> float | None:
        """The value of a metric, None if it is absent or was not measured."""
        metric = self.metrics.get(key)
        return None if metric is None or metric.value is None else float(metric.value)

    def values(self, *keys: str) -> dict[str, float | None]:
        """The values of several metrics, by key."""
        return {key: self.value(key) for key in keys}
