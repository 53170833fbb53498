"""The ways to adopt side by side: times, set-up, memory, and whether the losses follow eager's."""

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
    Recording,
    Rung,
    StrategyName,
    StrategyResult,
    Trajectory,
)

__all__ = ["TOLERANCE_PCT", "Trial", "ladder_of", "trajectory"]

# Another order of sums changes a loss in its last figures, and training carries that on; a
# frozen input or a wrong gradient changes it by more within a few steps.
TOLERANCE_PCT = 1.0
_NO_GPU = "nothing ran on a GPU"


@dataclass(frozen=True)
class Trial:
    """One run of the script under one way."""

    mode: StrategyName
    recording: Recording | None
    profile: Profile | None
    failure: PointFailure | None = None


def ladder_of(trials: Sequence[Trial], parameters: dict[str, str] | None = None) -> Ladder:
    """A rung for each trial; those of eager are what the others are compared with."""
    eager = next((trial for trial in trials if trial.mode == "eager"), None)
    reference = None if eager is None or eager.profile is None else eager.profile
    values = _adoption(eager)
    base = reference.value("iteration_ms") if reference is not None else None
    return Ladder(
        tuple(_rung(trial, base, values) for trial in trials), parameters=parameters or {}
    )


def _adoption(trial: Trial | None) -> StrategyResult | None:
    recording = None if trial is None else trial.recording
    return None if recording is None else recording.adoption


def _rung(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Rung:
    adoption, profile = _adoption(trial), trial.profile
    if adoption is not None and adoption.status == "failed":
        where = f" at {adoption.where}" if adoption.where else ""
        return Rung(
            trial.mode,
            adoption=adoption,
            failure=PointFailure((adoption.reason or "it failed") + where),
        )
    if trial.mode == "replay":
        return _replayed(trial, base_ms, eager)
    iteration = None if profile is None else profile.metrics.get("iteration_ms")
    if profile is None or iteration is None or iteration.value is None:
        if trial.recording is not None and trial.recording.mode == "rehearsal":
            return Rung(trial.mode, adoption=adoption, failure=PointFailure(_NO_GPU))
        failure = trial.failure or PointFailure("no step was timed")
        return Rung(trial.mode, adoption=adoption, failure=failure)
    share = profile.facts.graph_kernel_share_pct
    return Rung(
        trial.mode,
        iteration_ms=iteration,
        step_ms=profile.metrics.get("step_ms"),
        speedup=base_ms / float(iteration.value) if base_ms else None,
        setup_ms=_setup_ms(adoption) if trial.mode != "eager" else None,
        memory_mib=None if adoption is None else adoption.reserved_mib,
        graph_share_pct=float(share) if isinstance(share, int | float) else None,
        launches_per_step=profile.value("launches_per_step"),
        trajectory=Trajectory("reference")
        if trial.mode == "eager"
        else trajectory(eager, adoption),
        adoption=adoption,
        failure=trial.failure,
    )


def _setup_ms(adoption: StrategyResult | None) -> float | None:
    """What the first steps took beyond the last ones, and the call that adopted."""
    if adoption is None or not adoption.settle_ms:
        return None
    settled = median(adoption.settle_ms[len(adoption.settle_ms) // 2 :])
    beyond = sum(max(0.0, ms - settled) for ms in adoption.settle_ms)
    return (adoption.setup_ms or 0.0) + beyond


def _replayed(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Rung:
    """The whole step as `profile` replays it in place; its iteration is projected."""
    profile = trial.profile
    if profile is None or profile.value("replay_ms") is None:
        reason = None if profile is None else profile.replay.reason
        if profile is not None and profile.mode == "rehearsal":
            reason = _NO_GPU
        failure = trial.failure or PointFailure(reason or "no replay was measured")
        return Rung("replay", failure=failure)
    projected = profile.value("projected_iteration_ms")
    spent = [profile.value(key) for key in ("capture_ms", "instantiate_ms")]
    held = profile.value("graph_memory_mib")
    reserved = None if eager is None else eager.reserved_mib
    return Rung(
        "replay",
        iteration_ms=Metric(projected, "ms"),
        step_ms=profile.metrics.get("replay_ms"),
        speedup=base_ms / projected if base_ms and projected else None,
        projected=True,
        setup_ms=sum(ms for ms in spent if ms is not None) if any(spent) else None,
        memory_mib=reserved + held if reserved is not None and held is not None else None,
        graph_share_pct=100.0 if _whole(profile) else None,
        launches_per_step=1.0 if _whole(profile) else None,
        trajectory=_verified(profile),
        failure=trial.failure,
    )


def _whole(profile: Profile) -> bool:
    """Whether what was replayed is all of the step."""
    return profile.step is not None and profile.replay.scope == profile.step.scope


def _infers(profile: Profile) -> bool:
    return profile.step is not None and profile.step.scope == "forward"


def _verified(profile: Profile) -> Trajectory:
    """The check of updates batch by batch, which `profile` makes of a replay."""
    correct = profile.replay.correct
    # A step that changes no parameters is compared by what it gives back.
    what: Literal["update", "output"] = "output" if _infers(profile) else "update"
    largest = None if correct.max_update_diff is None else 100 * correct.max_update_diff
    reason, causes = correct.reason, correct.distinct_causes
    if profile.replay.status == "what_if":
        lines = sorted({blocker.where for blocker in profile.blockers if blocker.where})
        named = f" ({', '.join(map(str, lines))})" if lines else ""
        reason = f"measured with the blocking lines stubbed: they have to be mended first{named}"
        return Trajectory("not_compared", what, reason=reason)
    if correct.status == "verified":
        return Trajectory("follows", what, correct.steps, largest)
    if correct.status == "different":
        return Trajectory("differs", what, correct.steps, largest, TOLERANCE_PCT, reason, causes)
    return Trajectory("not_compared", what, reason=reason, causes=causes)


def trajectory(eager: StrategyResult | None, other: StrategyResult | None) -> Trajectory:
    """The losses after adopting against those of the same steps of eager."""
    if eager is None or other is None:
        return Trajectory("not_compared", reason="eager's losses are not known")
    if eager.adopted_at != other.adopted_at and other.of == "loss":
        return Trajectory(
            "not_compared", reason="the two runs were not at the same step when it was adopted"
        )
    begin = other.adopted_at if other.of == "loss" else 0
    pairs = list(zip(eager.values[begin:], other.values[begin:]))
    before = list(zip(eager.values[:begin], other.values[:begin]))
    if not pairs:
        return Trajectory("not_compared", other.of, reason="no loss was seen")
    apart = max((_apart(a, b) for a, b in before), default=0.0)
    if apart > TOLERANCE_PCT:
        return Trajectory(
            "not_compared",
            other.of,
            len(pairs),
            reason="two runs of the script differ before anything is adopted"
            f"{'' if apart == inf else f', by {apart:.2g} %'}: {_remedy(before)}",
        )
    largest = max(_apart(a, b) for a, b in pairs)
    status = "follows" if largest <= TOLERANCE_PCT else "differs"
    reason = None
    if status == "differs":
        reason = "random numbers (dropout) are drawn in another order, or the result is another one"
    if largest == inf:
        reason = "in one of the two runs it is no number"
    if all(a == pairs[0][0] for a, _ in pairs) and len(pairs) > 1 and other.of == "loss":
        what = "no number" if pairs[0][0] is None else "the same"
        reason = f"eager's loss is {what} in every step, so its agreement says little"
    # A file holds no infinity: it would be read back as not measured.
    told = None if largest == inf else largest
    return Trajectory(status, other.of, len(pairs), told, TOLERANCE_PCT, reason)  # type: ignore[arg-type]


def _remedy(before: Sequence[tuple[float | None, float | None]]) -> str:
    """What makes runs alike: those that begin alike have a seed, and kernels that vary."""
    first, again = before[0]
    if first != again:
        return "set a seed to compare them"
    return (
        "they begin alike, so the kernels are not deterministic; "
        "torch.use_deterministic_algorithms(True) makes them comparable"
    )


def _apart(eager: float | None, other: float | None) -> float:
    """Difference in per cent of eager's value; infinite if only one is a number."""
    if eager == other:
        return 0.0
    if eager is None or other is None:
        return inf
    return 100 * abs(other - eager) / max(abs(eager), 1e-12)
