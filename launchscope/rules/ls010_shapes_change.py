"""# Shapes change from step to step

## What it finds
Input shapes that differ between the observed steps.

## Why it matters
A CUDA graph replays fixed shapes at fixed addresses. A step with another shape needs another
graph, or its inputs padded to a shape that was captured.

## Example
Sequences padded to the longest of each batch: lengths 97, 101, 88. Padded to 128 they are
one shape.

## When it does not apply
When the shapes agree and only the ops differ it is control flow: LS011.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, constraints. Metric `shape_signatures`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import MAX_BUCKETS, distinct_inputs
from launchscope.rules.rule import Rule


def check(profile: Profile) -> list[Finding]:
    distinct = distinct_inputs(profile)
    if profile.shapes.stable is not False or distinct < 2:
        return []
    observed = sum(signature.steps for signature in profile.shapes.signatures)
    few = distinct <= MAX_BUCKETS
    return [
        Finding(
            code="LS010",
            severity="advice" if few else "warning",
            title=f"Input shapes change: {distinct} different ones in {observed} observed steps",
            advice="Pad the inputs to a few fixed sizes and capture one graph for each."
            if few
            else "Pad the inputs to a few fixed sizes first, or graph only the part of the step "
            "whose shapes are fixed (torch.cuda.make_graphed_callables).",
            evidence={
                "distinct": distinct,
                "observed_steps": observed,
                "inputs": [signature.inputs for signature in profile.shapes.signatures],
            },
        )
    ]


RULE = Rule("LS010", "Shapes change from step to step", check, __doc__)
