"""# Most GPU time is in large kernels

## What it finds
A step that spends at least 80 % of its GPU time in kernels of 100 us or more.

## Why it matters
The host launches the next kernels while a long kernel runs, so a graph has little to remove.

## Example
A wide MLP at batch size 8192 runs eight kernels of 2 ms each.

## When it does not apply
If the host waits between long kernels, see LS020 and LS021.

## Reference
- [PyTorch, scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
- Facts `large_kernel_share_pct`, `median_kernel_us`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import runs_torch
from launchscope.rules.rule import Findings, rule
from launchscope.wording import figures, pct


@rule("LS007", __doc__)
def RULE(profile: Profile) -> Findings:
    share, median = profile.facts.large_kernel_share_pct, profile.facts.median_kernel_us
    if share is not None and share >= 80.0:
        typical = "" if median is None else f" (median of all kernels: {figures(median)} us)"
        yield RULE.finding(
            "info",
            f"Kernels of 100 us or more take {pct(share)} of the GPU time{typical}",
            "Look for faster kernels instead of fewer launches: lower precision, "
            f"{'fused attention, torch.compile' if runs_torch(profile) else 'fused kernels'}.",
            large_kernel_share_pct=share,
            median_kernel_us=median,
        )
