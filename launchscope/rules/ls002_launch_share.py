"""# Launch share: the 15 % rule taken literally

## What it finds
The time spent inside launch calls in per cent of the step, where it is above 15 %, or where
it is below and a replay would pay all the same.

## Why it matters
"Adopt CUDA graphs when launches take more than 15 % of the step" is the common rule, and it
is wrong about one time in four. Launches are asynchronous: once about a thousand are queued,
every call blocks until the GPU retires one, so the sum of launch time tends to 100 % of a
perfectly GPU-bound step (back-pressure). And it misses the Python and dispatcher time
*between* launches, which a replay removes as well.

## Example
ResNet-50 at batch 256: launch share 54 %, yet the replay takes as long as eager, because
nearly all of it is back-pressure.

## When it does not apply
It never decides; LS001 does. It is silent when the share is small and a replay would not pay.

## Reference
Metrics `launch_api_ms`, `blocked_launch_ms`, `framework_ms`, `launch_call_ms`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import gain
from launchscope.rules.rule import Rule
from launchscope.rules.wording import ms, pct

LITERAL_PCT = 15.0


def check(profile: Profile) -> list[Finding]:
    share = profile.value("launch_share_pct")
    if share is None:
        return []
    found = gain(profile)
    pays = found is not None and found.removable_pct >= profile.threshold_pct
    above = share > LITERAL_PCT
    if not above and not pays:
        return []
    title = f"Launch calls take {pct(share)} of the step"
    if found is None or above == pays:
        advice = "The literal 15 % rule and what a replay removes agree here."
    elif above:
        advice = "The literal 15 % rule would say adopt; a replay would not pay. " + _back_pressure(
            profile
        )
    else:
        advice = "The literal 15 % rule would say no; a replay pays. " + _between(profile)
    return [
        Finding(
            code="LS002",
            severity="info",
            title=title,
            advice=advice,
            evidence={
                "launch_share_pct": share,
                "agrees": found is None or above == pays,
                "launch_api_ms": profile.value("launch_api_ms"),
                "blocked_launch_ms": profile.value("blocked_launch_ms"),
                "framework_ms": profile.value("framework_ms"),
                "launch_call_ms": profile.value("launch_call_ms"),
            },
        )
    ]


def _back_pressure(profile: Profile) -> str:
    blocked, launched = profile.value("blocked_launch_ms"), profile.value("launch_api_ms")
    if blocked and launched:
        return (
            f"{ms(blocked)} of the {ms(launched)} in launch calls is back-pressure: "
            "the queue is full and the call waits for the GPU."
        )
    return "The launches run ahead of the GPU, which hides their cost."


def _between(profile: Profile) -> str:
    framework, calls = profile.value("framework_ms"), profile.value("launch_call_ms")
    if framework is not None and calls is not None and framework > calls:
        return (
            f"The GPU waits {ms(framework)} for Python and the dispatcher between launches "
            f"and only {ms(calls)} for the launch calls; a replay removes both."
        )
    return "The cost lies between the launches, and a replay removes that too."


RULE = Rule("LS002", "Launch share: the 15 % rule taken literally", check, __doc__)
