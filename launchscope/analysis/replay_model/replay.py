"""The measured replay: its times, and whether it ran the work of the eager step."""

from __future__ import annotations

import dataclasses
import re
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.work import Work, gather
from launchscope.model import (
    SAME_FLAGS_RANGE,
    Correctness,
    InspectResult,
    KernelChange,
    PassFailure,
    Recording,
    ReplayResult,
    VerifyResult,
    WorkComparison,
)
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Trace, ints, unique, where
from launchscope.reason_text import reason_text

# Work is the same if the kernels that appeared or vanished take less than this share of its time.
CHANGED_SHARE = 0.02
# The driver's own, for copies and sets in a graph: seen on GPUs that have access to each other.
_COPIES = re.compile(r"mem(?:cpy|set)\d+(?:_post)?").fullmatch


class MeasuredReplay(Struct, frozen=True):
    """A timed replay, in GPU milliseconds per step. Bursts of it and of eager steps alternate."""

    result: ReplayResult
    whole_step: bool
    replay_ms: tuple[float, ...]
    eager_ms: tuple[float, ...]
    low_ms: float  # the lowest and highest median of a burst
    high_ms: float

    @property
    def ms(self) -> float:
        return median(self.replay_ms)

    @property
    def eager(self) -> float | None:
        """The median of what was captured, run eagerly under the same flags, in ms."""
        return median(self.eager_ms) if self.eager_ms else None


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


def replayed_work(replay: Trace) -> Work | None:
    """What the trace of a replay holds; its used steps are those that launched a graph."""
    window = find_iterations(replay, also=(SAME_FLAGS_RANGE,))
    if window is None:
        return None
    work = gather(replay, window)
    graph = work.launches[c.KIND] == c.GRAPH
    with_graph = unique(work.step[graph & (work.step >= 0)])
    return replace(work, iterations=replace(window, used=with_graph))


def compare_work(
    eager: Work | None, replayed: Work | None, *, without_optimizer: bool = False
) -> WorkComparison:
    """Compare the kernels of one replay with those of one eager step.

    The eager steps among the `replayed_work` ran under the flags of the capture; without them
    `eager` is compared. `without_optimizer` leaves out what eager launches in an optimizer's step.
    A graph may turn a copy or set into a kernel.
    """
    if replayed is None:
        return WorkComparison(None)
    graph = replayed.launches[c.KIND] == c.GRAPH
    with_graph = replayed.iterations.used
    after = _kernels_per_step(replayed, graph, with_graph)
    same_flags = np.setdiff1d(unique(replayed.step[replayed.step >= 0]), with_graph)
    if len(same_flags):
        reference, launches, steps = replayed, ~graph, same_flags
    elif eager is not None:
        reference, steps = eager, eager.iterations.used
        launches = np.ones(len(eager.launches), bool)
    else:
        return WorkComparison(None)
    if without_optimizer:
        launches = launches & ~reference.in_optimizer(ints(reference.launches, c.START))
    before = _kernels_per_step(reference, launches, steps)
    if not len(after) or not len(before):
        return WorkComparison(None)
    added, removed = _changes(before, after), _changes(after, before)
    weight = max(sum(change.total_us for change in side) for side in (added, removed))
    busy_us = sum(us for _, us in before.values())
    return WorkComparison(weight < CHANGED_SHARE * busy_us, added, removed)


def _kernels_per_step(work: Work, launches: Bools, steps: Ints) -> dict[str, tuple[float, float]]:
    """The kernels that these launches reached, by name: mean count and us per step."""
    kernels = work.activities[
        (work.activities[c.KIND] == c.KERNEL)
        & ~where(work.activities[c.NAME], _COPIES)
        & np.isin(work.activity_step, steps)
        & np.append(launches, False)[ints(work.activities, c.LAUNCH)]
    ]
    names, per = kernels[c.NAME], max(len(steps), 1)
    count, time = np.bincount(names.codes), np.bincount(names.codes, ints(kernels, c.DUR))
    rows = zip(names.texts, (count / per).tolist(), (time / 1e3 / per).tolist())
    return {name: (often, us) for name, often, us in rows if often}


def _changes(
    before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]
) -> tuple[KernelChange, ...]:
    """The kernels that run more often afterwards, the most expensive first."""
    changes = []
    for name, (count, us) in sorted(after.items()):
        more = round(count - before.get(name, (0.0, 0.0))[0])
        if more > 0:
            changes.append(KernelChange(name, more, more * (us / count)))
    return tuple(sorted(changes, key=lambda change: -change.total_us))


def correctness(
    verify: VerifyResult | None,
    failures: tuple[PassFailure, ...],
    inspected: InspectResult | None,
) -> Correctness:
    """What the verify pass found, or why it found nothing; in a rehearsal what steps show."""
    if inspected is not None and inspected.causes:
        return Correctness(causes=inspected.causes)
    if verify is None:
        failed = [failure.reason for failure in failures if failure.name == "verify"]
        return Correctness(reason=failed[0] if failed else None)
    if verify.status == "skipped":
        return Correctness(reason=verify.reason)
    diffs = verify.update_diff
    return Correctness(
        verify.status,
        len(diffs),
        max(diffs, default=None),
        verify.reason,
        verify.causes,
        max(verify.noise_floor, default=None),
    )


def with_largest_scope(recording: Recording) -> Recording:
    """The recording with forward and backward in place of a whole step that was not captured. With
    the forward alone, too little is known of the rest of the iteration."""
    whole, part = recording.replay, recording.scope_forward_backward
    if not (whole and part and whole.status in ("blocked", "failed") and part.status == "measured"):
        return recording
    why = f": {reason_text(whole.reason)}" if whole.reason else ""
    note = f"the whole step was not captured{why}"
    return dataclasses.replace(recording, replay=part, notes=(*recording.notes, note))
