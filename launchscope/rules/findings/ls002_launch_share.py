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

from launchscope.model import Profile
from launchscope.rules.profile_queries import WORTH_FIXING_PCT, gain, share_pct
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import ms, pct, pct_beside

LITERAL_PCT = 15.0
# Of the launch time; below it, back-pressure explains too little of it.
BLOCKED_SHARE = 0.3
_UNKNOWN_CAUSE = "The measurements do not show the cause."


def check(profile: Profile) -> Findings:
    share = profile.value("launch_share_pct")
    if share is None:
        return
    found = gain(profile)
    pays = found is not None and found.removable_pct >= profile.threshold_pct
    above = share > LITERAL_PCT
    if above or pays:
        yield RULE.finding(
            "info",
            f"{_calls(profile)} take {pct_beside(share, LITERAL_PCT)} of the step",
            _advice(profile, above=above),
            agrees=None if found is None else above == pays,
            **profile.values("launch_share_pct", "launch_api_ms", "blocked_launch_ms"),
            **profile.values("framework_ms", "launch_call_ms"),
        )


def _calls(profile: Profile) -> str:
    """A step that is graphed already may launch nothing but graphs, and they count as well."""
    return "Graph launches" if profile.value("launches_per_step") == 0 else "Launch calls"


def _advice(profile: Profile, *, above: bool) -> str:
    """What the rule says beside what the gain says, and why they differ where they do."""
    rule = f"The 15 % rule says {'adopt' if above else 'stay eager'}"
    found, threshold = gain(profile), profile.threshold_pct
    if found is None:
        return f"{rule}, but the gain of a replay is not known."
    if found.within_spread_of(threshold):
        return f"{rule}, but the timings do not show whether a replay pays (LS005)."
    pays = found.removable_pct >= threshold
    if above == pays:
        return f"{rule}, and the gain of a replay says the same."
    if pays:
        return f"{rule}, but a replay reaches your threshold. {_between(profile)}"
    but = f"{rule}, but a replay does not reach your threshold of {pct(threshold)}."
    return but if found.removable_pct > LITERAL_PCT else f"{but} {_hidden(profile)}"


def _hidden(profile: Profile) -> str:
    """Why launches take so much time and a replay would remove so little: the largest cause."""
    wait = _dominating_wait(profile)
    if wait is not None:
        return wait
    blocked, launched = profile.value("blocked_launch_ms"), profile.value("launch_api_ms")
    if blocked and launched and BLOCKED_SHARE * launched <= blocked <= launched:
        return (
            f"{ms(blocked)} of the {ms(launched)} in launch calls is back-pressure: the queue is "
            "full, and the call waits for the GPU."
        )
    idle, iteration = profile.value("gpu_idle_ms"), profile.value("iteration_ms")
    if idle is not None and iteration and 0 <= 100 * idle < LITERAL_PCT * iteration:
        return (
            f"The launches run ahead of the GPU, which is idle for only {ms(idle)} of the "
            f"{ms(iteration)}."
        )
    return _UNKNOWN_CAUSE


def _dominating_wait(profile: Profile) -> str | None:
    """The wait that makes up at least half of the idle time and is worth fixing."""
    idle = profile.value("gpu_idle_ms")
    waits = [
        (cost, cause)
        for key, cause in (("data_wait_ms", "for data"), ("sync_wait_ms", "in synchronizations"))
        if (cost := profile.value(key)) is not None
        and (share_pct(profile, key) or 0.0) >= WORTH_FIXING_PCT
    ]
    if not waits:
        return None
    cost, cause = max(waits)
    if idle is not None and cost < idle / 2:
        return None
    return f"The GPU waits {cause} for {ms(cost)} per iteration, and a replay does not change that."


def _between(profile: Profile) -> str:
    framework, calls = profile.value("framework_ms"), profile.value("launch_call_ms")
    if framework is None or calls is None or min(framework, calls) < 0 or framework + calls == 0:
        return _UNKNOWN_CAUSE
    return (
        f"The GPU waits {ms(framework)} for Python and the dispatcher between launches and "
        f"{ms(calls)} for the launch calls, and a replay removes both."
    )


RULE = Rule("LS002", check, __doc__)
