"""# An operation that a capture cannot contain

## What it finds
Each line inside the step that stops a capture: it reads a value on the host, copies from
memory that is not pinned, makes a shape that depends on data, or uses random state that the
graph does not know.

## Why it matters
The capture fails at that line, or each replay uses the value of the captured step.

## Example
`if loss.item() > 10: ...` inside the step. `torch.where(loss > 10, ...)` keeps the value on
the GPU. Read a loss for the log after the replay.

## When it does not apply
The same operations may stand between steps. LS021 reports the time that they cost there.

## Reference
NVIDIA, CUDA Graph Best Practice for PyTorch. PyTorch, CUDA semantics: CUDA Graphs.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule


def check(profile: Profile) -> list[Finding]:
    replayed = profile.replay.status == "measured"
    found = []
    for blocker in profile.blockers:
        line = f": {blocker.code.strip()}" if blocker.code else ""
        count = f", {blocker.count} times a step" if blocker.count > 1 else ""
        found.append(
            Finding(
                code="LS030",
                # A capture that worked in spite of it shows that the line is harmless there.
                severity="advice" if replayed else "warning",
                title=f"{blocker.op}{count} stops a capture{line}",
                advice=blocker.advice,
                where=blocker.where,
                evidence={
                    "op": blocker.op,
                    "category": blocker.category,
                    "count": blocker.count,
                },
            )
        )
    return found


RULE = Rule("LS030", check, __doc__, fixable=True)
