"""# The measurements contradict each other

## What it finds
- The GPU is busy for more than 3 % longer than the iteration lasts. The verdict then rests on
  counts if the step already runs inside graphs, or on the timings alone if steps that were
  timed again confirm them. Otherwise it rests on nothing and is inconclusive.
- A queue simulation of the unchanged iteration misses the measured one by more than 10 %.
- Iterations timed by CUDA events differ from the wall clock by more than 3 %.
- The trace joins less than 95 % of the device work to the call that launched it.

## Why it matters
The timings and the trace come from different steps of the run. If they do not fit together,
the idle time and the projections that use both are not reliable. launchscope never adjusts
such a figure without telling you.

## Example
The steps of a script get slower over time, so the traced steps do more work than the timed
ones.

## When it does not apply
A rehearsal times nothing.

## Reference
Facts `simulation_error_pct`, `iteration_check_pct`, `join_coverage_pct`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import TOLERANCE_PCT, already_graphed, busy_excess_pct
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import pct

SIMULATION_PCT = 10.0
JOINED_PCT = 95.0


def check(profile: Profile) -> Findings:
    facts = profile.facts
    excess = busy_excess_pct(profile)
    if excess is not None:
        yield _too_busy(profile, excess)
    error = facts.simulation_error_pct
    if error is not None and abs(error) > SIMULATION_PCT:
        yield RULE.finding(
            "info",
            f"The queue simulation misses the measured iteration by {pct(abs(error))}",
            "Projected iteration times have at least this error. The bounds of the gain include "
            "it.",
            simulation_error_pct=error,
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
            "The trace is incomplete, so launch counts are lower bounds. Record it again with "
            "fewer steps.",
            join_coverage_pct=joined,
        )


def _too_busy(profile: Profile, excess: float) -> Finding:
    """The trace is busy for longer than the iteration lasts, which decides what can be said."""
    slowed = f"Tracing slowed the GPU work down: it takes {pct(excess)} longer than the iteration"
    if already_graphed(profile):
        advice = "The verdict counts the kernels that come from graphs and does not use this time."
        return RULE.finding("info", slowed, advice, busy_excess_pct=excess)
    if profile.facts.projected_from_bursts:
        advice = (
            "Steps that were timed again beside the replays confirm the iteration time, and the "
            "verdict rests on them. Idle time and a prediction are not known."
        )
        return RULE.finding("info", slowed, advice, busy_excess_pct=excess)
    return RULE.finding(
        "error",
        f"The GPU was busy for {pct(excess)} longer than the iteration lasts",
        "The traced steps did different work than the timed ones, so there is no verdict. Profile "
        "equal steps: raise --warmup, or mark the step with launchscope.step().",
        busy_excess_pct=excess,
    )


RULE = Rule("LS006", check, __doc__)
