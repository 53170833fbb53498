"""# The gain is within the spread of the timings

## What it finds
A gain that may be zero, or on either side of your threshold, given the spread of the timings. In a
trace by itself also a gain that depends on gaps of several milliseconds between launches: whether a
replay removes them is unknown.

## Why it matters
A gain within the spread does not count: the next run could show a loss.

## Example
A replay removes 0.8 % of the iteration, and the timings vary by 2 %.

## When it does not apply
A gain beyond the spread and under the threshold, or a loss beyond it: LS001 reports these.

## Reference
- [PyTorch, torch.utils.benchmark](https://docs.pytorch.org/docs/stable/benchmark_utils.html):
  why one timing is not enough.
- Metrics `removable_pct`, `iteration_ms`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain, more_steps
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, pct_beside


@rule("LS005", __doc__)
def RULE(profile: Profile) -> Findings:
    found, threshold = gain(profile), profile.threshold_pct
    if found is None or ((found.beyond_spread or found.is_loss) and not found.is_open):
        return
    undecided = found.high_pct >= threshold
    advice = f"Profile again on an idle machine{more_steps(profile)}."
    if not undecided:
        advice = "Even the upper bound is below your threshold."
    elif profile.mode == "trace":
        advice = "Profile the script itself: launchscope profile train.py. A trace is not enough."
    what = "The gain is within the spread of the timings"
    if found.beyond_spread:
        what = "The gain may be on either side of your threshold"
    if found.rests_on_unsure:
        what = "The gain depends on long gaps between launches, which a replay may keep"
    yield RULE.finding(
        "warning" if undecided else "info",
        f"{what}: between {pct(found.low_pct)} and {pct_beside(found.high_pct, threshold)} of the "
        "iteration",
        advice,
        low_pct=found.low_pct,
        high_pct=found.high_pct,
    )
