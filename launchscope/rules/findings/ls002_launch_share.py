"""# Share of the step spent in launch calls (the 15 % rule)

## What it finds
The time inside launch calls as a share of the step, if it is above 15 %. Also a share of 15 %
or less, if a replay reaches your threshold all the same.

## Why it matters
"Adopt CUDA graphs if launches take more than 15 % of the step" is a common rule, and it gives
the wrong answer about one time in four. Launches are asynchronous. Once about a thousand of
them are queued, each call blocks until the GPU finishes one, so launch calls can fill nearly
100 % of a step that is limited by the GPU (back-pressure). The rule also misses the Python
and dispatcher time between launches, which a replay removes as well.

## Example
ResNet-50 at batch size 256 spends 54 % of the step in launch calls. The replay takes as long
as eager, because nearly all of that time is back-pressure.

## When it does not apply
This share never decides the verdict; LS001 does. The rule reports nothing if the share is
small and a replay does not reach your threshold.

## Reference
Metrics `launch_share_pct`, `launch_api_ms`, `blocked_launch_ms`, `framework_ms`,
`launch_call_ms`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import WORTH_MENDING_PCT, gain, share_pct
from launchscope.rules.rule import Rule
from launchscope.wording import ms, pct_beside

LITERAL_PCT = 15.0
# Of the launch time; below it, back-pressure explains too little of it.
BLOCKED_SHARE = 0.3


def check(profile: Profile) -> list[Finding]:
    share = profile.value("launch_share_pct")
    if share is None:
        return []
    found = gain(profile)
    pays = found is not None and found.removable_pct >= profile.threshold_pct
    above = share > LITERAL_PCT
    if not above and not pays:
        return []
    title = f"Launch calls take {pct_beside(share, LITERAL_PCT)} of the step"
    if found is None:
        advice = "The literal 15 % rule would say adopt; what a replay removes is not known."
    elif found.within_spread_of(profile.threshold_pct):
        says = "adopt" if above else "no"
        advice = (
            f"The literal 15 % rule would say {says}; whether a replay pays, the timings do not "
            "tell (LS005)."
        )
    elif above == pays:
        advice = "The literal 15 % rule and what a replay removes agree here."
    elif above:
        advice = "The literal 15 % rule would say adopt; a replay would not pay. " + _hidden(
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
                "agrees": None if found is None else above == pays,
                "launch_api_ms": profile.value("launch_api_ms"),
                "blocked_launch_ms": profile.value("blocked_launch_ms"),
                "framework_ms": profile.value("framework_ms"),
                "launch_call_ms": profile.value("launch_call_ms"),
            },
        )
    ]


def _hidden(profile: Profile) -> str:
    """Why launches cost so much time and a replay would save so little: the largest cause."""
    wait = _dominating_wait(profile)
    if wait is not None:
        return wait
    blocked, launched = profile.value("blocked_launch_ms"), profile.value("launch_api_ms")
    if blocked and launched and blocked >= BLOCKED_SHARE * launched:
        return (
            f"{ms(blocked)} of the {ms(launched)} in launch calls is back-pressure: "
            "the queue is full and the call waits for the GPU."
        )
    idle, iteration = profile.value("gpu_idle_ms"), profile.value("iteration_ms")
    if idle is not None and iteration and 100 * idle < profile.threshold_pct * iteration:
        return (
            f"The launches run ahead of the GPU, which is idle for only {ms(idle)} of the "
            f"{ms(iteration)}."
        )
    return "What was measured does not tell the cause."


def _dominating_wait(profile: Profile) -> str | None:
    """The wait that makes up at least half of the idle time and is worth mending."""
    idle = profile.value("gpu_idle_ms")
    waits = [
        (cost, said)
        for key, said in (("data_wait_ms", "for data"), ("sync_wait_ms", "in synchronisations"))
        if (cost := profile.value(key)) is not None
        and (share_pct(profile, key) or 0.0) >= WORTH_MENDING_PCT
    ]
    if not waits:
        return None
    cost, said = max(waits)
    if idle is not None and cost < idle / 2:
        return None
    return f"The GPU waits {ms(cost)} of the iteration {said}, which a replay leaves as it is."


def _between(profile: Profile) -> str:
    framework, calls = profile.value("framework_ms"), profile.value("launch_call_ms")
    if framework is None or calls is None or framework + calls <= 0:
        return "What was measured does not tell the cause."
    if framework > calls:
        return (
            f"The GPU waits {ms(framework)} for Python and the dispatcher between launches "
            f"and only {ms(calls)} for the launch calls; a replay removes both."
        )
    return (
        f"The GPU waits {ms(calls)} for the launch calls and {ms(framework)} for Python and the "
        "dispatcher between them; a replay removes both."
    )


RULE = Rule("LS002", check, __doc__)
