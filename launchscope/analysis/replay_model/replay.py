"""The measured replay: its times, whether it ran eager's work, and the gain it stands for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.work import Work, gather
from launchscope.model import (
    SAME_FLAGS_RANGE,
    Correctness,
    KernelChange,
    OptimizerChange,
    PassFailure,
    ReplayResult,
    VerifyResult,
)
from launchscope.model import (
    Work as WorkComparison,
)
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Trace, ints

# Kernels that came or went may make up this share of the busy time in the same work.
CHANGED_SHARE = 0.02
# What an optimizer that was made capturable runs instead of its usual kernels. DivFunctor: the
# division by a bias correction that is a tensor, one kernel per parameter.
_OPTIMIZER_KERNELS = ("multi_tensor_apply", "FusedAdam", "fused_adam", "fused_sgd", "DivFunctor")


@dataclass(frozen=True)
class MeasuredReplay:
    """A timed replay, in GPU milliseconds per step. Bursts of it and of eager steps alternate."""

    result: ReplayResult
    whole_step: bool
    replay_ms: tuple[float, ...]
    eager_ms: tuple[float, ...]
    low_ms: float  # the lowest and highest median of a burst
    high_ms: float

    @property
    def ms(self) -> float:
        """The median replay."""
        return median(self.replay_ms)

    @property
    def unchanged_eager_ms(self) -> float | None:
        """The median of the user's own eager step; None where the capture changed its flags."""
        return median(self.eager_ms) if self.eager_ms and not self.result.changes else None


def measured_replay(
    result: ReplayResult | None, *, whole_step: bool = False
) -> MeasuredReplay | None:
    """None when no replay was measured."""
    if result is None or result.status not in ("measured", "what_if"):
        return None
    bursts = [median(burst) for burst in result.replay_bursts if burst]
    if not bursts:
        return None
    replay = tuple(float(ms) for burst in result.replay_bursts for ms in burst)
    eager = tuple(float(ms) for burst in result.eager_bursts for ms in burst)
    return MeasuredReplay(result, whole_step, replay, eager, min(bursts), max(bursts))


def compare_work(
    eager: Work | None,
    replay: Trace | None,
    changes: tuple[OptimizerChange, ...],
    *,
    without_optimizer: bool = False,
) -> WorkComparison:
    """The multiset of kernels of one replay against that of one eager step.

    Same when the kernels that came, and those that went, are each under 2 % of eager's busy
    time. Steps of the replay's trace that launch no graph are eager steps under the flags that
    capture asked for, and are compared with. Where there are none, `eager` is: with `changes`,
    optimizer kernels may then differ (eager's inside `Optimizer.step`, the replay's by name),
    because eager under the same flags would run them too. Copies and sets are left out: a
    graph may turn one into a kernel or the other way round, and so is eager's optimizer with
    `without_optimizer`.
    """
    window = find_iterations(replay, also=(SAME_FLAGS_RANGE,)) if replay is not None else None
    if replay is None or window is None:
        return WorkComparison(None)
    window = dataclasses.replace(window, used=np.arange(len(window)))
    replayed = gather(replay, window)
    graph = (replayed.launches[c.KIND] == c.GRAPH).to_numpy(bool)
    with_graph = np.unique(replayed.step[graph & (replayed.step >= 0)])
    after = _per_step(replayed, graph, with_graph)
    plain = np.setdiff1d(np.unique(replayed.step[replayed.step >= 0]), with_graph)
    forgiven: frozenset[str] | None = None
    if len(plain):
        before = _per_step(replayed, ~graph & _kept(replayed, without_optimizer), plain)
    elif eager is not None:
        before = _per_step(eager, _kept(eager, without_optimizer), eager.iterations.used)
        forgiven = _optimizer_names(eager) if changes else None
    else:
        return WorkComparison(None)
    if not len(after) or not len(before):
        return WorkComparison(None)
    both = before.add_suffix("_before").join(after.add_suffix("_after"), how="outer").fillna(0.0)
    more = (both["count_after"] - both["count_before"]).round().astype(int)
    mean_after = both["us_after"] / both["count_after"].clip(lower=1e-9)
    mean_before = both["us_before"] / both["count_before"].clip(lower=1e-9)
    added = _changes(more[more > 0], mean_after)
    removed = _changes(-more[more < 0], mean_before)
    busy = float(before["us"].sum())
    weights = [
        sum(change.total_us for change in side if not _of_optimizer(change.name, forgiven))
        for side in (added, removed)
    ]
    return WorkComparison(max(weights) < CHANGED_SHARE * busy, added, removed)


def correctness(verify: VerifyResult | None, failures: tuple[PassFailure, ...]) -> Correctness:
    """What the verify pass found, or why it says nothing."""
    if verify is None:
        failed = [failure.reason for failure in failures if failure.name == "verify"]
        return Correctness(reason=failed[0] if failed else None)
    if verify.status == "skipped":
        return Correctness(reason=verify.reason)
    largest = max(verify.update_diff, default=None)
    return Correctness(
        verify.status, len(verify.update_diff), largest, verify.reason, verify.causes
    )


def _per_step(work: Work, launches: Bools, steps: Ints) -> pd.DataFrame:
    """Kernels of a step that these launches reached, by name: mean `count` and `us`."""
    kernels = work.activities[
        (work.activities[c.KIND] == c.KERNEL).to_numpy(bool)
        & np.isin(work.activity_step, steps)
        & np.append(launches, False)[ints(work.activities, c.LAUNCH)]
    ]
    grouped = kernels.groupby(c.NAME, observed=True)[c.DUR]
    per_step = pd.DataFrame({"count": grouped.size(), "us": grouped.sum() / 1e3})
    return per_step / max(len(steps), 1)


def _kept(work: Work, without_optimizer: bool) -> Bools:
    """Which launches take part: all, or those outside the optimizer's step."""
    if without_optimizer:
        return ~work.in_optimizer(ints(work.launches, c.START))
    return np.ones(len(work.launches), bool)


def _changes(counts: pd.Series[int], mean_us: pd.Series[float]) -> tuple[KernelChange, ...]:
    total = counts * mean_us[counts.index]
    order = total.sort_values(ascending=False).index
    return tuple(KernelChange(str(n), int(counts[n]), float(total[n])) for n in order)


def _optimizer_names(work: Work) -> frozenset[str]:
    """Names of the kernels that eager launches inside its optimizer's step."""
    inside = work.in_optimizer(ints(work.launches, c.START))
    rows = np.append(inside, False)[ints(work.activities, c.LAUNCH)]
    return frozenset(work.activities.loc[rows, c.NAME].astype(str))


def _of_optimizer(name: str, eager_names: frozenset[str] | None) -> bool:
    if eager_names is None:
        return False
    return name in eager_names or any(mark in name for mark in _OPTIMIZER_KERNELS)
