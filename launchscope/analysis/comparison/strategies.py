"""The strategies to adopt graphs side by side: times, set-up cost, memory and losses."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import median
from typing import Literal

from msgspec import Struct

from launchscope.model import (
    Adoption,
    Metric,
    PointFailure,
    Profile,
    Reason,
    Recording,
    Strategies,
    Strategy,
    StrategyName,
    StrategyResult,
    Trajectory,
)

# Another order of sums changes a loss in its last digits, and training amplifies that; a frozen
# input or a wrong gradient changes it by more within a few steps.
TOLERANCE_PCT = 1.0


class Trial(Struct, frozen=True):
    """One run of the script under one strategy."""

    mode: StrategyName
    recording: Recording | None
    profile: Profile | None
    failure: PointFailure | None = None
    adoption: Adoption | None = None  # of the mode `adopt`

    @property
    def result(self) -> StrategyResult | None:
        return None if self.recording is None else self.recording.strategy


def compare_strategies(trials: Sequence[Trial], batch_size: int | None = None) -> Strategies:
    """A strategy for each trial, compared with the eager one."""
    eager = next((trial for trial in trials if trial.mode == "eager"), None)
    base = eager.profile.value("iteration_ms") if eager and eager.profile else None
    reference = eager.result if eager else None
    tried = tuple(_measured(trial, base, reference) for trial in trials)
    return Strategies(tried, batch_size=batch_size)


def _measured(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Strategy:
    result, profile = trial.result, trial.profile
    if result is not None and result.status == "failed":
        failure = PointFailure(result.reason or Reason("no_step_timed"), where=result.where)
        return Strategy(trial.mode, result=result, failure=failure)
    if trial.mode == "adopt":
        return _adopted(trial, base_ms)
    if trial.mode == "replay":
        return _replay_measured(trial, base_ms, eager)
    iteration_ms = None if profile is None else profile.value("iteration_ms")
    if profile is None or iteration_ms is None:
        failure = trial.failure or PointFailure(Reason("no_step_timed"))
        if trial.recording is not None and trial.recording.mode == "rehearsal":
            failure = PointFailure(Reason("no_gpu_work"))
        return Strategy(trial.mode, result=result, failure=failure)
    is_eager = trial.mode == "eager"
    setup_ms = None
    if not is_eager and result is not None and result.settle_ms:
        # The call that adopts, and what the first steps took beyond the last ones.
        settled = median(result.settle_ms[len(result.settle_ms) // 2 :])
        setup_ms = (result.setup_ms or 0.0) + sum(max(0.0, ms - settled) for ms in result.settle_ms)
    return Strategy(
        trial.mode,
        iteration_ms=profile.metrics["iteration_ms"],
        step_ms=profile.metrics.get("step_ms"),
        speedup=base_ms / iteration_ms if base_ms else None,
        setup_ms=setup_ms,
        memory_mib=None if result is None else result.reserved_mib,
        graph_share_pct=profile.facts.graph_kernel_share_pct,
        launches_per_step=profile.value("launches_per_step"),
        trajectory=Trajectory("reference") if is_eager else trajectory(eager, result),
        result=result,
        failure=trial.failure,
    )


def _replay_measured(trial: Trial, base_ms: float | None, eager: StrategyResult | None) -> Strategy:
    """The step as `profile` replays it in place, with the iteration of the script's own loop."""
    profile = trial.profile
    if profile is None or profile.value("replay_ms") is None:
        reason = profile.replay.reason if profile else None
        if profile is not None and profile.mode == "rehearsal":
            reason = Reason("no_gpu_work")
        failure = trial.failure or PointFailure(reason or Reason("no_replay_measured"))
        return Strategy("replay", failure=failure)
    iteration_ms = profile.value("replayed_iteration_ms")
    spent = [profile.value(key) for key in ("capture_ms", "instantiate_ms")]
    held = profile.value("graph_memory_mib")
    reserved = None if eager is None else eager.reserved_mib
    whole_step = profile.step is not None and profile.replay.scope == profile.step.scope
    return Strategy(
        "replay",
        iteration_ms=profile.metrics["replayed_iteration_ms"],
        step_ms=profile.metrics.get("replay_ms"),
        speedup=base_ms / iteration_ms if base_ms and iteration_ms else None,
        projected=profile.iteration_source != "measured",
        setup_ms=sum(filter(None, spent)) if any(spent) else None,
        memory_mib=reserved + held if reserved is not None and held is not None else None,
        graph_share_pct=100.0 if whole_step else None,
        launches_per_step=1.0 if whole_step else None,
        trajectory=_verified(profile),
        failure=trial.failure,
    )


def _adopted(trial: Trial, base_ms: float | None) -> Strategy:
    """The verified patch. It was timed in alternation with the original, per optimizer step: the
    iteration is eager's, divided by that speedup."""
    value = trial.adoption
    if value is None or value.outcome != "verified" or value.speedup is None:
        known = None if value is None else value.reason
        if known is None and value is not None:
            against = value.outcome == "not_needed"
            known = Reason("verdict_against" if against else "no_gpu_work")
        return Strategy("adopt", failure=trial.failure or PointFailure(known or Reason("no_patch")))
    return Strategy(
        "adopt",
        iteration_ms=Metric(base_ms / value.speedup, "ms") if base_ms else value.after,
        speedup=value.speedup,
        projected=base_ms is not None,
        trajectory=Trajectory(
            "follows",
            "output" if value.covered == "forward" else "update",
            value.steps,
            0.0 if value.exact else None,
        ),
    )


def _verified(profile: Profile) -> Trajectory:
    """The result of the verify pass, which compares the updates batch by batch."""
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
    """The losses after adopting, compared with those of the same steps of eager."""
    if eager is None or other is None:
        return Trajectory("not_compared", reason=Reason("eager_loss_unknown"))
    begin = other.adopted_at if other.of == "loss" else 0
    if eager.adopted_at != begin and other.of == "loss":
        return Trajectory("not_compared", reason=Reason("adopted_at_another_step"))
    pairs = list(zip(eager.values, other.values))
    before, pairs = pairs[:begin], pairs[begin:]
    if not pairs:
        return Trajectory("not_compared", other.of, reason=Reason("no_loss"))
    difference = max((_difference_pct(a, b) for a, b in before), default=0.0)
    if difference > TOLERANCE_PCT:
        # Runs that begin alike have the same seed.
        reason = Reason("kernels_vary" if before[0][0] == before[0][1] else "runs_differ")
        return Trajectory("not_compared", other.of, len(pairs), reason=reason)
    largest = max(_difference_pct(a, b) for a, b in pairs)
    follows = largest <= TOLERANCE_PCT
    why = None if follows else Reason("loss_differs")
    if largest == inf:
        why = Reason("loss_not_finite")
    if len({loss for loss, _ in pairs}) == 1 and len(pairs) > 1 and other.of == "loss":
        why = Reason("constant_loss", {"finite": int(pairs[0][0] is not None)})
    # A file holds no infinity: it would be read back as not measured.
    known = None if largest == inf else largest
    status: Literal["follows", "differs"] = "follows" if follows else "differs"
    return Trajectory(status, other.of, len(pairs), known, TOLERANCE_PCT, why)


def _difference_pct(eager: float | None, other: float | None) -> float:
    """Difference in per cent of eager's value; infinite if only one is a number."""
    if eager == other:
        return 0.0
    if eager is None or other is None:
        return inf
    return 100 * abs(other - eager) / max(abs(eager), 1e-12)
