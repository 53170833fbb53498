"""# The step already runs inside CUDA graphs

## What it finds
A share of the step's kernels that the eager run itself launches through CUDA graphs.

## Why it matters
`torch.compile(mode="reduce-overhead")`, `make_graphed_callables` and libraries with graphs
of their own have already removed these launches; what is left to gain is the rest.

## Example
97 % of the kernels arrive by 3 graph launches a step: nothing to adopt.

## When it does not apply
From half of the kernels upwards the verdict is `already_graphed`; below that the gain of
graphing the whole step is weighed as usual.

## Reference
Fact `graph_kernel_share_pct`, metric `graph_launches_per_step`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import pct, plural

WORTH_TELLING_PCT = 1.0


def check(profile: Profile) -> list[Finding]:
    share = profile.facts.graph_kernel_share_pct
    if share is None or share < WORTH_TELLING_PCT:
        return []
    launches = profile.value("graph_launches_per_step")
    by = "" if launches is None else f", by {plural(launches, 'graph launch')}"
    return [
        Finding(
            code="LS008",
            severity="info",
            title=f"{pct(share)} of a step's kernels already run inside CUDA graphs{by}",
            advice="Look at what is still launched one by one. For torch.compile, "
            "TORCH_LOGS=cudagraphs,perf_hints names what it left out or records again.",
            evidence={"graph_kernel_share_pct": share, "graph_launches_per_step": launches},
        )
    ]


RULE = Rule("LS008", "The step already runs inside CUDA graphs", check, __doc__)
