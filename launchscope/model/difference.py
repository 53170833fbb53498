"""The difference of two Profiles, whichever way they came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model.profile import Recommendation

DIFFERENCE_SCHEMA = "launchscope/difference/1"


@dataclass(frozen=True)
class Side:
    """One of the two: what it is of, and what its step is."""

    name: str
    device: str | None
    step: str
    recommendation: Recommendation | None


@dataclass(frozen=True)
class MetricChange:
    """A metric on both sides; None where it was not measured. `beyond_spread` None: unknown."""

    key: str
    unit: str
    before: float | None
    after: float | None
    beyond_spread: bool | None = None

    @property
    def change_pct(self) -> float | None:
        """Of `before`; None where one of the two is not known or `before` is 0."""
        if self.before is None or self.after is None or not self.before:
            return None
        return 100.0 * (self.after - self.before) / abs(self.before)


@dataclass(frozen=True)
class KernelDifference:
    """A kernel whose count or time per step is not the same. 0 on the side that lacks it."""

    name: str
    state: Literal["appeared", "vanished", "changed"]
    before_count: float
    after_count: float
    before_us: float
    after_us: float

    @property
    def change_us(self) -> float:
        return self.after_us - self.before_us


@dataclass(frozen=True)
class Difference:
    """Metrics in the Profile's order, and kernels by how much GPU time they gain or lose."""

    before: Side
    after: Side
    metrics: tuple[MetricChange, ...]
    kernels: tuple[KernelDifference, ...]
    same_kernels: int
    notes: tuple[str, ...] = ()
    schema: str = DIFFERENCE_SCHEMA
