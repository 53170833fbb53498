"""# The GPU waits for data

## What it finds
At least 5 % of the iteration in which the GPU is idle while the host is in the data loader. Or
workers of a data loader that compute for so long per step that a replay would wait for them.

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
- Metric `data_wait_ms`. Facts `loader_workers`, and `loader_ms`: their CPU time per step, divided
  by their number.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import loader_limit_ms, wait_to_fix_first, worth_fixing
from launchscope.rules.rule import Findings, rule
from launchscope.wording import ms


def loader_needs(profile: Profile) -> str:
    """What the workers of a data loader do for a step, as a clause."""
    workers, least = profile.facts.loader_workers or 1, profile.facts.loader_ms or 0.0
    if workers == 1:
        return f"the data loader's only worker takes {ms(least)} per step"
    return f"the data loader's {workers} workers take {ms(least)} per step, in parallel"


@rule("LS020", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    cost, first = worth_fixing(profile, "data_wait_ms"), wait_to_fix_first(profile)
    if loader_limit_ms(profile) is not None:
        yield RULE.finding(
            "warning" if first == "loader_ms" else "advice",
            f"An iteration with a replay waits for data: {loader_needs(profile)}",
            "Use more DataLoader workers, or give them less to do per batch: until then, no faster "
            "step makes the iteration shorter than that.",
        )
    elif cost is not None:
        yield RULE.finding(
            "warning" if first == "data_wait_ms" else "advice",
            f"The GPU waits for data for {cost}",
            ("Fix this before you adopt a graph: use" if first == "data_wait_ms" else "Use")
            + " more DataLoader workers with persistent_workers=True, pin_memory=True, copies with "
            "non_blocking=True, and fetch the next batch while the GPU works.",
        )
