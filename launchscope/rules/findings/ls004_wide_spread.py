"""# The timings vary widely

## What it finds
An interquartile range of the iteration time above 10 % of its median.

## Why it matters
A gain smaller than the spread could be chance, and the median of a few steps that vary widely
changes from run to run.

## Example
Iterations take between 8 and 14 ms because another process uses the same GPU or CPU.

## When it does not apply
A script with several kinds of steps, such as prefill and decode, is timed for each kind
separately.

## Reference
torch.utils.benchmark.Measurement warns at the same 10 %. Metric `iteration_ms`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import spread_pct
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import pct

WIDE_PCT = 10.0
VERY_WIDE_PCT = 25.0


def check(profile: Profile) -> Findings:
    spread = spread_pct(profile, "iteration_ms")
    if spread is None or spread <= WIDE_PCT:
        return
    very = spread > VERY_WIDE_PCT
    advice = "Trace more steps on a machine that runs nothing else."
    if profile.mode != "trace":
        more = 4 * max(30, profile.facts.timing_steps or 0)
        advice = f"Time more steps on a machine that runs nothing else (--timing {more})."
    yield RULE.finding(
        "warning" if very else "advice",
        f"The iteration time varies {'very ' if very else ''}widely: its interquartile range is "
        f"{pct(spread)} of its median",
        advice,
        spread_pct=spread,
        samples=len(profile.metrics["iteration_ms"].samples),
    )


RULE = Rule("LS004", check, __doc__)
