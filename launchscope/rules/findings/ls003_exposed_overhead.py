"""# Exposed launch overhead

## What it finds
The share of the iteration in which the GPU has nothing to do because the host has not yet
launched the next work, when it is at least the threshold. Waiting for data, for a
synchronisation and between two queued kernels are counted apart.

## Why it matters
Only launch cost that the GPU can see is worth removing. This is the figure that decides a
prediction, and the upper limit of what a graph can give.

## Example
300 kernels of 3 us launched every 9 us: the GPU is idle two thirds of the time, and all of
that is exposed launch overhead.

## When it does not apply
On a GPU-bound step, where launches run ahead of the GPU.

## Reference
Metrics `launch_overhead_ms`, `launch_overhead_pct`, `step_overhead_pct`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import ms, pct


def check(profile: Profile) -> list[Finding]:
    share = profile.value("launch_overhead_pct")
    if share is None or share < profile.threshold_pct:
        return []
    overhead, iteration = profile.value("launch_overhead_ms"), profile.value("iteration_ms")
    amount = "" if overhead is None or iteration is None else f", {ms(overhead)} of {ms(iteration)}"
    step = profile.value("step_overhead_pct")
    return [
        Finding(
            code="LS003",
            severity="info",
            title=f"The GPU waits for launches {pct(share)} of the iteration{amount}",
            advice="" if step is None else f"Within the step alone it is {pct(step)}.",
            evidence={
                "launch_overhead_pct": share,
                "launch_overhead_ms": overhead,
                "step_overhead_pct": step,
                "framework_ms": profile.value("framework_ms"),
                "launch_call_ms": profile.value("launch_call_ms"),
            },
        )
    ]


RULE = Rule("LS003", "Exposed launch overhead", check, __doc__)
