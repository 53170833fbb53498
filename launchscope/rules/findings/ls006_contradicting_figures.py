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
from launchscope.rules.rule import Rule
from launchscope.wording import pct

SIMULATION_PCT = 10.0
JOINED_PCT = 95.0


def check(profile: Profile) -> list[Finding]:
    found = []
    excess = busy_excess_pct(profile)
    if excess is not None:
        found.append(_too_busy(profile, excess))
    error = profile.facts.simulation_error_pct
    if error is not None and abs(error) > SIMULATION_PCT:
        found.append(
            _finding(
                "warning",
                f"The queue simulation misses the measured iteration by {pct(abs(error))}",
                "Projected iterations carry at least this error, and the verdict allows for it.",
                simulation_error_pct=error,
            )
        )
    check_pct = profile.facts.iteration_check_pct
    if check_pct is not None and abs(check_pct) > TOLERANCE_PCT:
        found.append(
            _finding(
                "warning",
                f"Iterations by GPU events and by the wall clock differ by {pct(abs(check_pct))}",
                "A few long iterations (evaluation, checkpoints) do this; the median leaves "
                "them out, the wall clock does not.",
                iteration_check_pct=check_pct,
            )
        )
    joined = profile.facts.join_coverage_pct
    if joined is not None and joined < JOINED_PCT:
        found.append(
            _finding(
                "warning",
                f"Only {pct(joined)} of the device work could be joined to its launch",
                "The trace is cut or lost events; launch counts are lower limits.",
                join_coverage_pct=joined,
            )
        )
    return found


def _too_busy(profile: Profile, excess: float) -> Finding:
    """The trace is busy for longer than the iteration lasts; what the verdict rests on then."""
    stretched = (
        f"Recording stretched the GPU's work: it lasts {pct(excess)} longer than the iteration"
    )
    if already_graphed(profile):
        advice = (
            "Which kernels come from graphs is counted, not timed, and the verdict rests on it."
        )
        return _finding("warning", stretched, advice, busy_excess_pct=excess)
    if profile.facts.projected_from_bursts:
        advice = (
            "The steps timed beside the replays took what the timed ones had taken, so the "
            "verdict rests on these; idle time and a prediction cannot be told."
        )
        return _finding("warning", stretched, advice, busy_excess_pct=excess)
    return _finding(
        "error",
        f"The GPU was busy for {pct(excess)} longer than the iteration lasts",
        "The traced steps did other work than the timed ones; no verdict can rest on them. "
        "Profile a stretch of equal steps: raise --warmup, or mark the step with "
        "launchscope.step().",
        busy_excess_pct=excess,
    )


def _finding(severity: str, title: str, advice: str, **evidence: float) -> Finding:
    return Finding(
        code="LS006",
        severity="error" if severity == "error" else "warning",
        title=title,
        advice=advice,
        evidence=dict(evidence),
    )


RULE = Rule("LS006", check, __doc__)
