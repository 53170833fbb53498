"""# The GPU waits for data

## What it finds
At least 5 % of the iteration in which the GPU is idle while the host is in the data loader.

## Why it matters
A replay does not change this wait: if the data loader is the limit, a faster step waits longer.

## Example
A step takes 3 ms, and the next batch is ready every 9 ms: a graph changes nothing.

## Before
    loader = DataLoader(dataset, batch_size=16)
    for x, y in loader:
        out = model(x.to(device))

## After
    loader = DataLoader(
        dataset, batch_size=16, num_workers=2, persistent_workers=True, pin_memory=True
    )
    for x, y in loader:
        out = model(x.to(device, non_blocking=True))

## When it does not apply
Data loading while the GPU works costs nothing and is not counted.

## Reference
- [PyTorch, Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
- Metric `data_wait_ms`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import WORTH_FIXING_PCT, share_pct, wait_to_fix_first
from launchscope.rules.rule import Findings, rule
from launchscope.wording import ms, pct


@rule("LS020", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    share, wait = share_pct(profile, "data_wait_ms"), profile.value("data_wait_ms")
    if share is not None and wait is not None and share >= WORTH_FIXING_PCT:
        of = f" ({pct(share)})" if share <= 100 else ""  # the wait is that of traced steps
        first = wait_to_fix_first(profile) == "data_wait_ms"
        yield RULE.finding(
            "warning" if first else "advice",
            f"The GPU waits for data for {ms(wait)} per iteration{of}",
            ("Fix this before you adopt a graph: use" if first else "Use")
            + " more DataLoader workers with persistent_workers=True, pin_memory=True, copies with "
            "non_blocking=True, and fetch the next batch while the GPU works.",
            data_wait_ms=wait,
            share_pct=share,
        )
