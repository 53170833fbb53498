"""# The graph holds a lot of GPU memory

## What it finds
A graph that holds 1 GiB of GPU memory or more.

## Why it matters
The memory pool of a graph stays reserved as long as the graph exists, and the rest of the
program cannot use it. Several graphs with a pool each (one per shape, for instance) hold the
sum of their pools.

## Example
One public case: 0.22 GiB by PyTorch's own count, 8.6 GiB on the device.

## When it does not apply
Graphs that share one pool (`pool=`) reuse its memory: capture the largest shape first. Never
replay two graphs of one pool at the same time, and copy a result before the next replay of any
of them. The section "Several shapes" of docs/adopting-a-graph.md shows this.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, memory management. Metric `graph_memory_mib`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import mib

LARGE_MIB = 1024.0


def check(profile: Profile) -> Findings:
    memory = profile.value("graph_memory_mib")
    if memory is not None and memory >= LARGE_MIB:
        yield RULE.finding(
            "advice",
            f"The graph holds {mib(memory)} of GPU memory",
            "Make sure that it fits beside evaluation and other models. Several graphs can share "
            "this memory: capture them into one pool, the largest first "
            "(torch.cuda.graph(graph, pool=pool)).",
            graph_memory_mib=memory,
        )


RULE = Rule("LS039", check, __doc__)
