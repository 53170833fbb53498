"""# Memory that the graph holds

## What it finds
A graph that keeps more than 1 GiB of GPU memory to itself.

## Why it matters
A graph's memory pool stays reserved while the graph lives: its intermediates can serve no
other part of the program, and one graph per shape multiplies it.

## Example
One public case: 0.22 GiB by torch's own count, 8.6 GiB on the device.

## When it does not apply
Graphs captured with a common `pool=` share their memory, if they replay in the order of
their capture.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, memory management. Metric `graph_memory_mib`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import mib

LARGE_MIB = 1024.0


def check(profile: Profile) -> list[Finding]:
    memory = profile.value("graph_memory_mib")
    if memory is None or memory < LARGE_MIB:
        return []
    return [
        Finding(
            code="LS039",
            severity="advice",
            title=f"The graph holds {mib(memory)} of GPU memory",
            advice="Make sure that it fits beside evaluation and other models; let several "
            "graphs share one pool (torch.cuda.graph(g, pool=first.pool())).",
            evidence={"graph_memory_mib": memory},
        )
    ]


RULE = Rule("LS039", "Memory that the graph holds", check, __doc__)
