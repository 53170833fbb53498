"""# The machine changed its speed while it was measured

## What it finds
The step is timed at two moments of the run, and at a third where the two disagree. This finding
tells of medians of the iteration that differ by more than 10 % between these looks.

## Why it matters
Other work on the machine, or a clock that falls, slows the host for seconds. Steps in a row all
feel it, so the spread of one look does not show it; but what a replay takes off the iteration is
mostly time of the host.

## Example
7.30 ms at first, 5.70 ms and 5.69 ms in the seconds after: the graph takes 27 % or 7 % off.

## When it does not apply
Scripts that do other work in later steps differ by themselves; LS010 to LS012 tell of those.

## Reference
Fact `looks_iteration_ms`: the median iteration of each look. The metrics are medians over all
their steps, and the bounds of the gain take in their quartiles.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import gain
from launchscope.rules.rule import Rule
from launchscope.rules.wording import ms

UNSTEADY_PCT = 10.0


def check(profile: Profile) -> list[Finding]:
    looks = profile.facts.looks_iteration_ms or ()
    if len(looks) < 2:
        return []
    apart = 100 * (max(looks) / min(looks) - 1)
    if apart <= UNSTEADY_PCT:
        return []
    return [
        Finding(
            code="LS044",
            severity="warning" if _matters(profile) else "advice",
            title=f"The machine changed its speed: an iteration took {_told(looks)}, seconds apart",
            advice="Run it again while nothing else does; the figures are medians over all looks.",
            evidence={"apart_pct": apart, "fastest_ms": min(looks), "slowest_ms": max(looks)},
        )
    ]


def _told(looks: tuple[float, ...]) -> str:
    *first, last = (ms(look) for look in looks)
    return f"{', '.join(first)} and {last}"


def _matters(profile: Profile) -> bool:
    """Whether the bounds of the gain leave the verdict open."""
    found = gain(profile)
    return found is None or found.low_pct < profile.threshold_pct <= found.high_pct


RULE = Rule("LS044", "The machine changed its speed while it was measured", check, __doc__)
