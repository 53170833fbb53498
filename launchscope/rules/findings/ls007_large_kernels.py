"""# The kernels are already large

## What it finds
Steps that spend most of their GPU time in kernels of 100 us and more.

## Why it matters
A launch costs a few microseconds. While a long kernel runs, the host launches the next ones
for free, and a graph has nothing to remove.

## Example
A wide MLP at batch 8192: eight kernels of 2 ms each.

## When it does not apply
Long kernels with host waits between them; see LS020 and LS021.

## Reference
Facts `large_kernel_share_pct`, `median_kernel_us`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import figures, pct

MOSTLY_PCT = 80.0


def check(profile: Profile) -> list[Finding]:
    share = profile.facts.large_kernel_share_pct
    if share is None or share < MOSTLY_PCT:
        return []
    median = profile.facts.median_kernel_us
    typical = "" if median is None else f" (the median of all kernels is {figures(median)} us)"
    return [
        Finding(
            code="LS007",
            severity="info",
            title=f"The kernels are already large: {pct(share)} of the GPU time is in kernels "
            f"of 100 us and more{typical}",
            advice="Look for faster kernels rather than cheaper launches: lower precision, "
            "fused attention, torch.compile.",
            evidence={"large_kernel_share_pct": share, "median_kernel_us": median},
        )
    ]


RULE = Rule("LS007", "The kernels are already large", check, __doc__)
