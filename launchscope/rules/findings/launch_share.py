"""# Time in launch calls (the 15 % rule)

## What it finds
- The share of the iteration in which the GPU is idle because the host has not launched the next
  work yet, if it reaches your threshold. Waits for data and synchronization are counted apart.
- The time inside launch calls as a share of the step, if it is above 15 % or if a replay reaches
  your threshold.
- A step that spends at least 80 % of its GPU time in kernels of 100 us or more. The host launches
  the next kernels while a long one runs, so a graph has little to remove.

## Why it matters
"Adopt CUDA graphs if launches take more than 15 % of the step" is a common rule, and wrong about
one time in four. Once about a thousand launches are queued, each call blocks until the GPU finishes
one (back-pressure), so launch calls can fill a step that is limited by the GPU. The rule also
misses the Python and dispatcher time between launches, which a replay removes as well. Only launch
time that leaves the GPU idle is worth removing.

## Example
ResNet-50 at batch size 256: 54 % of the step, nearly all back-pressure. A replay gains nothing.
300 kernels of 3 us each that are launched every 9 us leave the GPU idle two thirds of the time.

## When it does not apply
These shares never decide the verdict; LS001 does. They are left out if a trace cannot show a gain,
for example because it has no step.

## Reference
- [NVIDIA, Performance Issues of CUDA graphs](https://docs.nvidia.com/dl-cuda-graph/troubleshooting/performance-issues.html)
- Metrics `launch_overhead_pct`, `launch_share_pct`, `blocked_launch_ms`, `framework_ms`. Facts
  `large_kernel_share_pct`, `median_kernel_us`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import WORTH_FIXING_PCT, Gain, gain, runs_torch, share_pct
from launchscope.rules.rule import Findings, rule
from launchscope.wording import figures, ms, pct, pct_beside

LITERAL_PCT = 15.0
# Of the launch time; below it, back-pressure explains too little of it.
BLOCKED_SHARE = 0.3
_UNKNOWN_CAUSE = "The measurements do not show the cause."


@rule("LS002", __doc__)
def RULE(profile: Profile) -> Findings:
    if profile.facts.gain_unknown is None:
        yield from _exposed(profile)
        yield from _launch_calls(profile)
    yield from _large_kernels(profile)


def _exposed(profile: Profile) -> Findings:
    share = profile.value("launch_overhead_pct")
    if share is None or share <= 0 or share < profile.threshold_pct:
        return
    overhead, iteration = profile.value("launch_overhead_ms"), profile.value("iteration_ms")
    of = f" ({ms(overhead)} of {ms(iteration)})" if overhead and iteration else ""
    step = profile.value("step_overhead_pct")
    yield RULE.finding(
        "info",
        f"The GPU waits for launches for {pct(share)} of the iteration{of}",
        "" if step is None else f"In the step alone, the share is {pct(step)}.",
    )


def _launch_calls(profile: Profile) -> Findings:
    share, found = profile.value("launch_share_pct"), gain(profile)
    if share is None:
        return
    above = share > LITERAL_PCT
    if above or (found is not None and found.pays):
        # A step that is graphed already may launch nothing but graphs, and they count as well.
        calls = "Graph launches" if profile.value("launches_per_step") == 0 else "Launch calls"
        yield RULE.finding(
            "info",
            f"{calls} take {pct_beside(share, LITERAL_PCT)} of the step",
            _advice(profile, found, above=above),
        )


def _large_kernels(profile: Profile) -> Findings:
    share, median = profile.facts.large_kernel_share_pct, profile.facts.median_kernel_us
    if share is not None and share >= 80.0:
        typical = "" if median is None else f" (median of all kernels: {figures(median)} us)"
        yield RULE.finding(
            "info",
            f"Kernels of 100 us or more take {pct(share)} of the GPU time{typical}",
            "Look for faster kernels instead of fewer launches: lower precision, "
            f"{'fused attention, torch.compile' if runs_torch(profile) else 'fused kernels'}.",
        )


def _advice(profile: Profile, found: Gain | None, *, above: bool) -> str:
    """What the rule says beside what the gain says, and why they differ where they do."""
    rule = f"The 15 % rule says {'to adopt' if above else 'to stay eager'}"
    if found is None:
        return f"{rule}, but the gain of a replay is not known."
    if found.is_open:
        return f"{rule}, but the timings do not show whether a replay pays (LS001)."
    if above == found.pays:
        return f"{rule}, and the gain of a replay agrees."
    if found.pays:
        return f"{rule}, but a replay reaches your threshold. {_between(profile)}"
    limit = pct(found.threshold_pct)
    but = f"{rule}, but a replay does not reach your threshold of {limit}."
    return but if found.removable_pct > LITERAL_PCT else f"{but} {_hidden(profile)}"


def _hidden(profile: Profile) -> str:
    """Why launches take so much time and a replay would remove so little: the largest cause."""
    causes = {"sync_wait_ms": "in synchronizations", "data_wait_ms": "for data"}
    wait = max(causes, key=lambda key: profile.value(key) or 0.0)
    cost, idle = profile.value(wait) or 0.0, profile.value("gpu_idle_ms")
    if (share_pct(profile, wait) or 0.0) >= WORTH_FIXING_PCT and cost >= (idle or 0.0) / 2:
        return f"The GPU waits {causes[wait]} for {ms(cost)} per iteration, which a replay keeps."
    blocked, launched = profile.value("blocked_launch_ms"), profile.value("launch_api_ms")
    if blocked and launched and BLOCKED_SHARE * launched <= blocked <= launched:
        return (
            f"{ms(blocked)} of the {ms(launched)} in launch calls is back-pressure: the queue is "
            "full, and the call waits for the GPU."
        )
    iteration = profile.value("iteration_ms")
    if idle is not None and iteration and 0 <= 100 * idle < LITERAL_PCT * iteration:
        of = f"{ms(idle)} of the {ms(iteration)}"
        return f"The launches run ahead of the GPU, which is idle for only {of}."
    return _UNKNOWN_CAUSE


def _between(profile: Profile) -> str:
    framework, calls = profile.value("framework_ms"), profile.value("launch_call_ms")
    if framework is None or calls is None or min(framework, calls) < 0 or framework + calls == 0:
        return _UNKNOWN_CAUSE
    host = "Python and the dispatcher" if runs_torch(profile) else "the host"
    return (
        f"The GPU waits {ms(framework)} for {host} between launches and "
        f"{ms(calls)} for the launch calls, and a replay removes both."
    )
