"""# Iterations took different times at different moments

## What it finds
Steps are timed at two moments of a run. This finding tells of medians of the iteration that
differ by more than 10 %, and by more than the interquartile range at either moment, although all
steps have inputs of the same shapes.

## Why it matters
Other work on the machine, or a clock that falls, slows the host for seconds. Steps in a row all
feel it, so the spread at one moment does not show it; but what a replay takes off the iteration
is mostly time of the host. What disturbs a host only makes it slower, so the faster moment is
the one that counts; the bounds of the gain reach to the other.

## Example
7.30 ms at first, 5.70 ms at the end, 5.3 ms with a replay: the graph takes 27 % or 7 % off.

## When it does not apply
Scripts that do other work in later steps differ by themselves.

## Reference
Facts `looks_iteration_ms`, `unsteady`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Rule
from launchscope.rules.wording import ms


def check(profile: Profile) -> list[Finding]:
    looks = profile.facts.timing_window_iteration_ms
    if not profile.facts.unsteady or not looks:
        return []
    took = " and ".join(ms(look) for look in looks)
    return [
        Finding(
            code="LS044",
            severity="warning" if _matters(profile) else "advice",
            title=f"Iterations took {took} at different moments of the run; the faster counts",
            advice="Profile again on an otherwise idle machine.",
            evidence={
                "apart_pct": 100 * (max(looks) / min(looks) - 1),
                "fastest_ms": min(looks),
                "slowest_ms": max(looks),
            },
        )
    ]


def _matters(profile: Profile) -> bool:
    """Whether the bounds of the gain leave the verdict open."""
    found = gain(profile)
    return found is None or found.low_pct < profile.threshold_pct <= found.high_pct


RULE = Rule("LS044", "Iterations took different times at different moments", check, __doc__)
