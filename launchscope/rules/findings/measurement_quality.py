"""# Measurements that are missing, vary, or contradict each other

## What it finds
- Passes that gave no result, and a timing pass that ended before ten steps.
- Traced GPU work that takes more than 3 % longer than the iteration. Without a measured replay, the
  gain is not known then.
- Steps that replay fewer than half as many kernels as other steps with as many graphs do, or as the
  capture launched.
- Iterations whose times by CUDA events and by the wall clock differ by more than 3 %.
- A trace that joins less than 95 % of the device work to the call that launched it.
- An interquartile range of the iteration time above 10 % of its median.
- A measured replay whose result was not compared with the eager result.

## Why it matters
Timings and trace come from different steps of the run, and figures from both need them to agree. A
gain smaller than the spread could be chance. A capture can succeed and compute something else. What
was not measured is marked as "not measured", and never as zero.

## Example
Iterations take between 8 and 14 ms because another process uses the same GPU or CPU. A script of 14
steps has ten for the warm-up, and only four are timed. Or there was no memory for a second copy of
the state, and the result of the replay was not checked.

## When it does not apply
A rehearsal times nothing, and a pass that you left out with 0 is not missing. Iterations of a
script with several kinds of steps differ because of them.

## Reference
- [torch.utils.benchmark](https://docs.pytorch.org/docs/stable/benchmark_utils.html)
  warns at the same 10 %.
- Metric `iteration_ms`. Facts `iteration_check_pct`, `join_coverage_pct`, `timing_steps`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.reason_text import reason_text
from launchscope.rules.profile_queries import (
    REPLAYED,
    TOLERANCE_PCT,
    already_graphed,
    basis,
    busy_excess_pct,
    few_steps_timed,
    incomplete_replays,
    more_steps,
)
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, plural

JOINED_PCT = 95.0


@rule("LS004", __doc__)
def RULE(profile: Profile) -> Findings:
    yield from _missing(profile)
    yield from _contradictions(profile)
    yield from _spread(profile)
    yield from _unchecked(profile)


def _missing(profile: Profile) -> Findings:
    steps = profile.facts.timing_steps or 0
    if few_steps_timed(profile):
        yield RULE.finding(
            "warning",
            f"Only {plural(steps, 'step')} could be timed",
            "Give the script more steps or lower --warmup.",
        )
    if profile.facts.has_pass_failures is True:
        yield RULE.finding(
            "warning",
            "A pass gave no result",
            "The notes name the pass and the reason: fix it and profile again. The results of the "
            "other passes are valid.",
        )


def _contradictions(profile: Profile) -> Findings:
    excess = busy_excess_pct(profile)
    if excess is not None:
        yield _too_busy(profile, excess)
    incomplete = incomplete_replays(profile)
    if incomplete:
        yield RULE.finding(
            "warning",
            f"{plural(incomplete, 'traced step')} run{'s' * (incomplete == 1)} fewer than half as "
            "many kernels as the same graphs in other steps or in their capture",
            "The trace lost part of these replays. Record it again with fewer steps.",
        )
    apart = profile.facts.iteration_check_pct
    if apart is not None and abs(apart) > TOLERANCE_PCT:
        yield RULE.finding(
            "info",
            f"Iterations timed by GPU events and by the wall clock differ by {pct(abs(apart))}",
            "A few long iterations (an evaluation, a checkpoint) cause this: the wall clock "
            "includes them, and the median does not.",
        )
    joined = profile.facts.join_coverage_pct
    if joined is not None and joined < JOINED_PCT:
        yield RULE.finding(
            "warning",
            f"The trace joins only {pct(joined)} of the device work to its launch",
            "Launch counts are lower bounds. Record the trace again with fewer steps.",
        )


def _too_busy(profile: Profile, excess: float) -> Finding:
    title = f"The traced GPU work takes {pct(excess)} longer than the iteration that was timed"
    if already_graphed(profile) or basis(profile) in REPLAYED:
        return RULE.finding("info", title, "The verdict does not rest on the times of the trace.")
    advice = (
        "The traced steps did different work than the timed ones, and the gain is not known any "
        "better than that. Profile equal steps: raise --warmup, or mark the step with "
        "launchscope.step()."
    )
    return RULE.finding("warning", title, advice)


def _spread(profile: Profile) -> Findings:
    iteration = profile.metrics.get("iteration_ms")
    if iteration is None or not iteration.value or iteration.iqr is None:
        return
    spread = 100.0 * iteration.iqr / iteration.value
    if spread <= 10.0:
        return
    very = spread > 25.0
    advice = f"Profile more steps on a machine that runs nothing else{more_steps(profile)}."
    yield RULE.finding(
        "warning" if very else "advice",
        f"The iteration time varies {'very ' if very else ''}widely: its interquartile range is "
        f"{pct(spread)} of its median",
        advice,
    )


def _unchecked(profile: Profile) -> Findings:
    correct = profile.replay.correct
    if profile.replay.status == "measured" and correct.status == "not_checked":
        why = f": {reason_text(correct.reason)}" if correct.reason else ""
        yield RULE.finding(
            "advice",
            f"The result of the replay was not checked{why}",
            "Before you rely on the graph, compare the losses of the first hundred steps with "
            "eager, from the same seed.",
        )
