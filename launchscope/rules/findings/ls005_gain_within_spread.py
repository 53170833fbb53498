"""# The gain lies within the spread

## What it finds
A removable share whose lower bound, by the spread of the eager and replay timings and the
error of the queue simulation, is not above zero.

## Why it matters
Nothing within the spread counts as a gain: the next run could show a loss.

## Example
0.8 % removable with a spread of 2 %.

## When it does not apply
A gain beyond the spread but under the threshold is LS001's to tell, and so is a loss.

## Reference
Facts `removable_low_pct`, `removable_high_pct`, `simulation_error_pct`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Rule
from launchscope.rules.wording import pct


def check(profile: Profile) -> list[Finding]:
    found = gain(profile)
    if found is None or found.beyond_spread or found.is_loss:
        return []
    undecided = found.high_pct >= profile.threshold_pct
    return [
        Finding(
            code="LS005",
            severity="warning" if undecided else "info",
            title=f"The gain lies within the spread: between {pct(found.low_pct)} and "
            f"{pct(found.high_pct)} of the iteration",
            advice=_advice(profile) if undecided else "Even its upper end is under the threshold.",
            evidence={"low_pct": found.low_pct, "high_pct": found.high_pct},
        )
    ]


def _advice(profile: Profile) -> str:
    if profile.mode == "trace":
        return "A trace cannot tell: profile the script itself, launchscope profile train.py."
    more = 4 * max(30, int(profile.facts.timing_steps or 0))
    return f"Time more steps (--timing {more} --replay {more}) on an otherwise idle machine."


RULE = Rule("LS005", "The gain lies within the spread", check, __doc__)
