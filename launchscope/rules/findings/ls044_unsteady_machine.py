"""# Iteration times changed during the run

## What it finds
Medians of the iteration time that differ by more than 10 % between two moments of the run, and
by more than the interquartile range at either, although all steps have the same input shapes.

## Why it matters
Other work on the machine or a slower clock delays all steps of one moment alike, so the spread does
not show it, and the gain changes. The verdict uses the faster one, the bounds the slower one too.

## Example
7.30 ms at first, 5.70 ms at the end, and 5.3 ms with a replay: the graph removes 27 % or 7 %.

## When it does not apply
If later steps of the script do different work, their times differ by themselves.

## Reference
- [PyTorch, torch.utils.benchmark](https://docs.pytorch.org/docs/stable/benchmark_utils.html):
  timings vary between runs.
- Facts `timing_window_iteration_ms`, `unsteady`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Findings, rule
from launchscope.wording import listed, ms


@rule("LS044", __doc__)
def RULE(profile: Profile) -> Findings:
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
