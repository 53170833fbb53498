"""The strategies to adopt graphs side by side: times, set-up cost, memory, and whether the losses
follow eager's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Literal

from launchscope.model import (
    Ladder,
    Metric,
    PointFailure,
    Profile,
    Reason,
    Recording,
    Rung,
    StrategyName,
    StrategyResult,
    Trajectory,
)

# Another order of sums changes a loss in its last digits, and training amplifies that; a frozen
# input or a wrong gradient changes it by more within a few steps.
TOLERANCE_PCT = 1.0
_NO_GPU = Reason("no_gpu_work")


@dataclass(frozen=True)
class Trial:
    """One run of the script under one strategy."""

    mode: StrategyName
    recording: Recording | None
    profile: Profile | None
    failure: PointFailure | None = None

    @property
    def result(self) -> StrategyResult | None:
        return None if self.recording is None else self.recording.adoption


def ladder_of(trials: Sequence[Trial], parameters: dict[str, str] | None = None) -> Ladder:
    """A rung for each trial, compared with the eager one."""
    eager = next((trial for trial in trials if trial.mode == "eager"), None)
    base = eager.profile.value("iteration_ms") if eager and eager.profile else None
    reference = eager.result if eager else None
    return Ladder(
        tuple(_rung(trial, base, reference) for trial in trials), parameters=parameters or {}
    )


def _rung(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Rung:
    result, profile = trial.result, trial.profile
    if result is not None and result.status == "failed":
        failure = PointFailure(result.reason or Reason("no_step_timed"), where=result.where)
        return Rung(trial.mode, adoption=result, failure=failure)
    if trial.mode == "replay":
        return _replay_rung(trial, base_ms, eager)
    iteration = None if profile is None else profile.metrics.get("iteration_ms")
    if profile is None or iteration is None or iteration.value is None:
        failure = trial.failure or PointFailure(Reason("no_step_timed"))
        if trial.recording is not None and trial.recording.mode == "rehearsal":
            failure = PointFailure(_NO_GPU)
        return Rung(trial.mode, adoption=result, failure=failure)
    is_eager = trial.mode == "eager"
    return Rung(
        trial.mode,
        iteration_ms=iteration,
        step_ms=profile.metrics.get("step_ms"),
        speedup=base_ms / float(iteration.value) if base_ms else None,
        setup_ms=None if is_eager else _setup_ms(result),
        memory_mib=None if result is None else result.reserved_mib,
        graph_share_pct=profile.facts.graph_kernel_share_pct,
        launches_per_step=profile.value("launches_per_step"),
        trajectory=Trajectory("reference") if is_eager else trajectory(eager, result),
        adoption=result,
        failure=trial.failure,
    )


def _setup_ms(result: StrategyResult | None) -> float | None:
    """The call that adopts, and what the first steps took beyond the last ones."""
    if result is None or not result.settle_ms:
        return None
    settled = median(result.settle_ms[len(result.settle_ms) // 2 :])
    beyond = sum(max(0.0, ms - settled) for ms in result.settle_ms)
    return (result.setup_ms or 0.0) + beyond


def _replay_rung(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Rung:
    """The step as `profile` replays it in place; its iteration is projected."""
    profile = trial.profile
    if profile is None or profile.value("replay_ms") is None:
        reason = None if profile is None else profile.replay.reason
        if profile is not None and profile.mode == "rehearsal":
            reason = _NO_GPU
        failure = trial.failure or PointFailure(reason or Reason("no_replay_measured"))
        return Rung("replay", failure=failure)
    projected = profile.value("projected_iteration_ms")
    spent = [profile.value(key) for key in ("capture_ms", "instantiate_ms")]
    held = profile.value("graph_memory_mib")
    reserved = None if eager is None else eager.reserved_mib
    whole_step = profile.step is not None and profile.replay.scope == profile.step.scope
    return Rung(
        "replay",
        iteration_ms=Metric(projected, "ms"),
        step_ms=profile.metrics.get("replay_ms"),
        speedup=base_ms / projected if base_ms and projected else None,
        projected=True,
        setup_ms=sum(ms for ms in spent if ms is not None) if any(spent) else None,
        memory_mib=reserved + held if reserved is not None and held is not None else None,
        graph_share_pct=100.0 if whole_step else None,
        launches_per_step=1.0 if whole_step else None,
        trajectory=_verified(profile),
        failure=trial.failure,
    )


def _verified(profile: Profile) -> Trajectory:
    """The check of updates, batch by batch, that belongs to a replay."""
    correct = profile.replay.correct
    # A step that changes no parameters is compared by its outputs.
    infers = profile.step is not None and profile.step.scope == "forward"
    what: Literal["update", "output"] = "output" if infers else "update"
    largest = None if correct.max_update_diff is None else 100 * correct.max_update_diff
    if profile.replay.status == "what_if":
        lines = sorted({blocker.where for blocker in profile.blockers if blocker.where})
        stubbed = Reason("blocking_lines_stubbed", {"lines": ", ".join(map(str, lines))})
        return Trajectory("not_compared", what, reason=stubbed)
    if correct.status == "verified":
        return Trajectory("follows", what, correct.steps, largest)
    reason, causes = correct.reason, correct.distinct_causes
    if correct.status == "different":
        return Trajectory("differs", what, correct.steps, largest, TOLERANCE_PCT, reason, causes)
    return Trajectory("not_compared", what, reason=reason, causes=causes)


def trajectory(eager: StrategyResult | None, other: StrategyResult | None) -> Trajectory:
    """The losses after adopting against those of the same steps of eager."""
    if eager is None or other is None:
        return Trajectory("not_compared", reason=Reason("eager_loss_unknown"))
    if eager.adopted_at != other.adopted_at and other.of == "loss":
        return Trajectory("not_compared", reason=Reason("adopted_at_another_step"))
    begin = other.adopted_at if other.of == "loss" else 0
    pairs = list(zip(eager.values[begin:], other.values[begin:]))
    before = list(zip(eager.values[:begin], other.values[:begin]))
    if not pairs:
        return Trajectory("not_compared", other.of, reason=Reason("no_loss"))
    difference = max((_difference_pct(a, b) for a, b in before), default=0.0)
    if difference > TOLERANCE_PCT:
        return Trajectory(
            "not_compared",
            other.of,
            len(pairs),
            reason=_runs_differ(before, difference),
        )
    largest = max(_difference_pct(a, b) for a, b in pairs)
    status: Literal["follows", "differs"] = "follows" if largest <= TOLERANCE_PCT else "differs"
    reason: Reason | None = None
    if status == "differs":
        reason = Reason("loss_differs")
    if largest == inf:
        reason = Reason("loss_not_finite")
    if all(a == pairs[0][0] for a, _ in pairs) and len(pairs) > 1 and other.of == "loss":
        reason = Reason("constant_loss", {"finite": int(pairs[0][0] is not None)})
    # A file holds no infinity: it would be read back as not measured.
    known = None if largest == inf else largest
    return Trajectory(status, other.of, len(pairs), known, TOLERANCE_PCT, reason)


def _runs_differ(before: Sequence[tuple[float | None, float | None]], pct: float) -> Reason:
    """Why, and by how much; runs that begin alike have a seed, and kernels that vary."""
    first, again = before[0]
    details = {"begin_alike": int(first == again)}
    return Reason("runs_differ", details if pct == inf else {**details, "pct": pct})


def _difference_pct(eager: float | None, other: float | None) -> float:
    """Difference in per cent of eager's value; infinite if only one is a number."""
    if eager == other:
        return 0.0
    if eager is None or other is None:
        return inf
    return 100 * abs(other - eager) / max(abs(eager), 1e-12)
