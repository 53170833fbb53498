"""# The timings vary widely

## What it finds
An interquartile range of the iteration time above 10 % of its median.

## Why it matters
A gain smaller than the spread could be chance.

## Example
Iterations take between 8 and 14 ms because another process uses the same GPU or CPU.

## When it does not apply
A script with several kinds of steps, such as prefill and decode, is timed for each kind separately.
In a trace where only some steps replay a graph, the iterations differ for that reason (LS013).

## Reference
- [torch.utils.benchmark](https://docs.pytorch.org/docs/stable/benchmark_utils.html)
  warns at the same 10 %.
- Metric `iteration_ms`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct


@rule("LS004", __doc__)
def RULE(profile: Profile) -> Findings:
    iteration = profile.metrics.get("iteration_ms")
    if iteration is None or not iteration.value or iteration.iqr is None or profile.step_groups:
        return
    spread = 100.0 * iteration.iqr / iteration.value
    if spread <= 10.0:
        return
    very = spread > 25.0
    advice = "Trace more steps on a machine that runs nothing else."
    if profile.iteration_source == "measured":
        advice = "Profile again on a machine that runs nothing else."
    elif profile.mode != "trace":
        more = 4 * max(30, profile.facts.timing_steps or 0)
        advice = f"Time more steps on a machine that runs nothing else (--timing {more})."
    yield RULE.finding(
        "warning" if very else "advice",
        f"The iteration time varies {'very ' if very else ''}widely: its interquartile range is "
        f"{pct(spread)} of its median",
        advice,
        spread_pct=spread,
        samples=len(iteration.samples),
    )
