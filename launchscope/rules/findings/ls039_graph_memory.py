"""# The graph holds a lot of GPU memory

## What it finds
A graph that holds 1 GiB of GPU memory or more.

## Why it matters
The memory pool of a graph stays reserved as long as the graph exists, and several pools add up.

## Example
One public case: 0.22 GiB by PyTorch's own count, 8.6 GiB on the device.

## When it does not apply
Graphs that share one pool (`pool=`) reuse its memory: capture the largest shape first, replay one
at a time, and copy a result before the next replay (docs/adopting-a-graph.md, "Several shapes").

## Reference
- [PyTorch, CUDA semantics: memory of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#graph-memory-management)
- Metric `graph_memory_mib`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import mib


@rule("LS039", __doc__)
def RULE(profile: Profile) -> Findings:
    memory = profile.value("graph_memory_mib")
    if memory is not None and memory >= 1024.0:
        yield RULE.finding(
            "advice",
            f"The graph holds {mib(memory)} of GPU memory",
            "Make sure that it fits beside evaluation and other models. Several graphs can share "
            "this memory: capture them into one pool, the largest first "
            "(torch.cuda.graph(graph, pool=pool)).",
            graph_memory_mib=memory,
        )
