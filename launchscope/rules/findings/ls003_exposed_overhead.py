"""# Exposed launch overhead

## What it finds
The share of the iteration in which the GPU is idle because the host has not launched the next
work yet, if it reaches the threshold. Waits for data and synchronization are counted separately.

## Why it matters
Only launch time that leaves the GPU idle is worth removing. Predictions are based on it.

## Example
300 kernels of 3 us each are launched every 9 us: the GPU is idle two thirds of the time.

## When it does not apply
In a step that is limited by the GPU, where the launches run ahead of the GPU, and in a trace that
cannot show a gain, for example because it has no step.

## Reference
- [NVIDIA, CUDA Graph Best Practice for PyTorch](https://docs.nvidia.com/dl-cuda-graph/latest)
- Metrics `launch_overhead_ms`, `launch_overhead_pct`, `step_overhead_pct`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import ms, pct


@rule("LS003", __doc__)
def RULE(profile: Profile) -> Findings:
    share = profile.value("launch_overhead_pct")
    if share is None or share <= 0 or share < profile.threshold_pct:
        return
    if profile.facts.gain_unknown is not None:
        return
    overhead, iteration = profile.value("launch_overhead_ms"), profile.value("iteration_ms")
    of = f" ({ms(overhead)} of {ms(iteration)})" if overhead and iteration else ""
    step = profile.value("step_overhead_pct")
    yield RULE.finding(
        "info",
        f"The GPU waits for launches for {pct(share)} of the iteration{of}",
        "" if step is None else f"In the step alone, the share is {pct(step)}.",
        **profile.values("launch_overhead_pct", "launch_overhead_ms", "step_overhead_pct"),
        **profile.values("framework_ms", "launch_call_ms"),
    )
