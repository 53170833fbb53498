"""# The measurements contradict each other

## What it finds
- The GPU is busy for more than 3 % longer than the iteration lasts. Without a measured replay, the
  gain is not known then, and the verdict is inconclusive.
- Steps replay fewer than half as many kernels as other steps with as many graphs do, or as the
  capture launched.
- Iterations timed by CUDA events differ from the wall clock by more than 3 %.
- The trace joins less than 95 % of the device work to the call that launched it.

## Why it matters
Timings and trace come from different steps of the run. Figures from both need them to agree. What
is measured without a trace does not depend on it.

## Example
The steps of a script get slower over time, so the traced steps do more work than the timed ones.

## Before
    for number, (x, y) in enumerate(batches):
        if number % 2 == 0:  # these iterations do more work than the others
            evaluate()
        train_step(x, y)

## After
    for number, (x, y) in enumerate(batches):
        if number % 2 == 0:
            evaluate()
        with launchscope.step():  # every step does the same work
            train_step(x, y)

## When it does not apply
A rehearsal times nothing.

## Reference
- [PyTorch, CUDA semantics: asynchronous execution](https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution)
- Facts `iteration_check_pct`, `join_coverage_pct`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile, Severity
from launchscope.rules.profile_queries import (
    REPLAYED,
    TOLERANCE_PCT,
    already_graphed,
    basis,
    busy_excess_pct,
    incomplete_replays,
)
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, plural

JOINED_PCT = 95.0


@rule("LS006", __doc__)
def RULE(profile: Profile) -> Findings:
    facts = profile.facts
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
            incomplete_replays=incomplete,
        )
    apart = facts.iteration_check_pct
    if apart is not None and abs(apart) > TOLERANCE_PCT:
        yield RULE.finding(
            "info",
            f"Iterations timed by GPU events and by the wall clock differ by {pct(abs(apart))}",
            "A few long iterations (an evaluation, a checkpoint) cause this: the wall clock "
            "includes them, and the median does not.",
            iteration_check_pct=apart,
        )
    joined = facts.join_coverage_pct
    if joined is not None and joined < JOINED_PCT:
        yield RULE.finding(
            "warning",
            f"The trace joins only {pct(joined)} of the device work to its launch",
            "Launch counts are lower bounds. Record the trace again with fewer steps.",
            join_coverage_pct=joined,
        )


def _too_busy(profile: Profile, excess: float) -> Finding:
    severity: Severity = "info"
    title = f"The traced GPU work takes {pct(excess)} longer than the iteration that was timed"
    if already_graphed(profile):
        advice = "The verdict counts the kernels that come from graphs and does not use this time."
    elif basis(profile) in REPLAYED:
        advice = (
            "The verdict rests on the timed steps and on the replays, which ran without a trace. "
            "Idle time and a prediction are not known."
        )
    else:
        severity = "warning"
        title = f"The GPU was busy for {pct(excess)} longer than the iteration lasts"
        advice = (
            "The traced steps did different work than the timed ones, and the gain is not known "
            "any better than that. Profile equal steps: raise --warmup, or mark the step with "
            "launchscope.step()."
        )
    return RULE.finding(severity, title, advice, busy_excess_pct=excess)
