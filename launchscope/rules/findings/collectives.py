"""# The GPU waits in collectives

## What it finds
At least 5 % of the iteration in which collectives run on the GPU and no other kernel does.

## Why it matters
A collective ends when its last rank has arrived. A rank that arrives early waits inside the kernel,
which looks busy. What a graph would give it depends on the rank that it waits for.

## Example
One of two ranks is late by 4 ms in each step: the all-reduce of the other one takes 4 ms longer.

## Before
    dist.all_reduce(gradient)
    out = model(x)

## After
    work = dist.all_reduce(gradient, async_op=True)
    out = model(x)  # while the collective runs
    work.wait()

## When it does not apply
Collectives beside other kernels cost little, and are not counted.

## Reference
- [PyTorch, distributed communication](https://docs.pytorch.org/docs/stable/distributed.html)
- Metrics `exposed_communication_ms` and `communication_ms`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import worth_fixing
from launchscope.rules.rule import Findings, rule

_OF_TRACE = "Record every rank and report on the folder of their traces: it names"
_OF_RANKS = "The comparison of the ranks names"


@rule("LS022", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    cost = worth_fixing(profile, "exposed_communication_ms")
    if cost is None:
        return
    yield RULE.finding(
        "advice",
        f"The GPU runs nothing but collectives for {cost}",
        f"{_OF_TRACE if profile.mode == 'trace' else _OF_RANKS} the rank that the others wait for. "
        "If none is late, overlap the communication with other work.",
    )
