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

from launchscope.model import Profile
from launchscope.op_names import as_written
from launchscope.rules.rule import Findings, Rule


def check(profile: Profile) -> Findings:
    captured = profile.replay.status == "measured"  # this capture worked in spite of the line
    for blocker in profile.blockers:
        name = as_written(blocker.op, blocker.code)
        count = f" ({blocker.count} times per step)" if blocker.count > 1 else ""
        code = f": {blocker.code.strip()}" if blocker.code else ""
        stops = "can stop" if captured else "stops"
        yield RULE.finding(
            "advice" if captured else "warning",
            f"{name[0].upper()}{name[1:]}{count} {stops} a capture{code}",
            blocker.advice,
            blocker.where,
            op=blocker.op,
            category=blocker.category,
            count=blocker.count,
        )


RULE = Rule("LS030", check, __doc__, fixable=True)
