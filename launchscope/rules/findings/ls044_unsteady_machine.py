"""# Iteration times changed during the run

## What it finds
launchscope times steps at two moments of a run. This rule reports medians of the iteration
time that differ by more than 10 %, and by more than the interquartile range at either moment,
although all steps have the same input shapes.

## Why it matters
Other work on the machine, or a clock that slows down, delays the host for seconds. It slows
all steps of one moment alike, so the spread at that moment does not show it. A replay mostly
removes host time, so the gain depends on the moment. A disturbance only makes the host slower:
the verdict uses the faster moment, and the bounds of the gain include the slower one.

## Example
7.30 ms at first, 5.70 ms at the end, and 5.3 ms with a replay: the graph removes 27 % or 7 %.

## When it does not apply
If later steps of the script do different work, their times differ by themselves.

## Reference
Facts `timing_window_iteration_ms`, `unsteady`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import listed, ms


def check(profile: Profile) -> Findings:
    medians = profile.facts.timing_window_iteration_ms
    if not profile.facts.unsteady or not medians or min(medians) <= 0:
        return
    found = gain(profile)
    open_ = found is None or found.low_pct < profile.threshold_pct <= found.high_pct
    yield RULE.finding(
        "warning" if open_ else "advice",
        f"Iterations took {listed([ms(median) for median in medians])} at different moments of "
        "the run, and the verdict uses the fastest",
        "Profile again on an idle machine.",
        apart_pct=100 * (max(medians) / min(medians) - 1),
        fastest_ms=min(medians),
        slowest_ms=max(medians),
    )


RULE = Rule("LS044", check, __doc__)
