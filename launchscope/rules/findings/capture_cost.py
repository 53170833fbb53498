"""# What a capture costs: time, memory, changes to the optimizer

## What it finds
- A capture that pays back only after more steps than you expect to run. You pay for it once: its
  cost divided by what each replay saves is the break-even.
- The optimizer flags that launchscope set for the capture, such as `capturable=True`.
- A graph that holds 1 GiB of GPU memory or more.

## Why it matters
A short run can lose more than it gains. Without the flags your own capture fails with "Attempting
CUDA graph capture of step() ... but param_groups' capturable is False". The memory pool of a graph
stays reserved as long as the graph exists, and several pools add up.

## Example
A capture of 900 ms that saves 1 ms per step costs more than it saves with `--expected-steps 500`.
AdamW counts its steps on the CPU unless it is constructed for a capture. One public case holds
0.22 GiB by PyTorch's own count and 8.6 GiB on the device.

## When it does not apply
Without `--expected-steps` the verdict does not use the break-even. SGD with a constant learning
rate needs no flag (LS035). Graphs that share one pool (`pool=`) reuse its memory: capture the
largest shape first, replay one at a time, and copy a result before the next replay
(`launchscope docs get-started`, "Several shapes").

## Reference
- [PyTorch, CUDA semantics: memory of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#graph-memory-management)
- Metrics `break_even_steps`, `capture_ms`, `instantiate_ms`, `graph_memory_mib`; `replay.changes`
  in the Profile.
"""

from __future__ import annotations

from math import ceil

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain, never_pays_back
from launchscope.rules.rule import Findings, rule
from launchscope.wording import listed, mib, plural


@rule("LS009", __doc__)
def RULE(profile: Profile) -> Findings:
    late, found = never_pays_back(profile), gain(profile)
    if late is not None:
        needed, expected = late
        yield RULE.finding(
            "warning",
            f"The capture pays back after {plural(ceil(needed), 'step')}, and you expect "
            f"{expected:,}",
            "Stay eager for runs this short, or use one capture for several runs in one process.",
        )
    changes = list(map(str, profile.replay.changes))
    if changes and (found is None or found.pays) and late is None:
        yield RULE.finding(
            "info",
            f"The capture needed {listed(changes)}",
            "Make the same change where your script constructs the optimizer.",
        )
    memory = profile.value("graph_memory_mib")
    if memory is not None and memory >= 1024.0:
        yield RULE.finding(
            "advice",
            f"The graph holds {mib(memory)} of GPU memory",
            "Make sure that it fits beside evaluation and other models. Several graphs can share "
            "this memory: capture them into one pool, the largest first "
            "(torch.cuda.graph(graph, pool=pool)).",
        )
