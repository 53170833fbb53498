"""# The gain is within the spread of the timings

## What it finds
A gain whose lower bound is not above zero. The bounds come from the spread of the eager and
replay timings and from the error of the queue simulation.

## Why it matters
A gain within the spread does not count: the next run could show a loss.

## Example
A replay removes 0.8 % of the iteration, and the timings vary by 2 %.

## When it does not apply
If the gain is beyond the spread but under the threshold, LS001 reports it. The same holds for
a loss.

## Reference
Metrics `removable_pct`, `iteration_ms`. Fact `simulation_error_pct`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Rule
from launchscope.wording import pct, pct_beside


def check(profile: Profile) -> list[Finding]:
    found = gain(profile)
    if found is None or found.beyond_spread or found.is_loss:
        return []
    undecided = found.high_pct >= profile.threshold_pct
    return [
        Finding(
            code="LS005",
            severity="warning" if undecided else "info",
            title=f"The gain is within the spread of the timings: between {pct(found.low_pct)} "
            f"and {pct_beside(found.high_pct, profile.threshold_pct)} of the iteration",
            advice=_advice(profile)
            if undecided
            else "Even the upper bound is below your threshold.",
            evidence={"low_pct": found.low_pct, "high_pct": found.high_pct},
        )
    ]


def _advice(profile: Profile) -> str:
    if profile.mode == "trace":
        return (
            "A trace cannot decide this. Profile the script itself: launchscope profile train.py."
        )
    more = 4 * max(30, int(profile.facts.timing_steps or 0))
    return f"Time more steps on an idle machine (--timing {more} --replay {more})."


RULE = Rule("LS005", check, __doc__)
