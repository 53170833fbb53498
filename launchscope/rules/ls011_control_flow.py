"""# Control flow depends on data

## What it finds
Steps with the same input shapes that ran different ops.

## Why it matters
A capture records one path. A replay takes that path for every batch, also where eager code
would have taken another: the result is silently wrong.

## Example
`if loss > limit: clip(grads)` records either the clipping or its absence. `torch.where`
keeps both in the graph.

## When it does not apply
A branch on a Python value that never changes after warm-up (a flag, the mode of the module).
A branch that the observed steps all took the same way is not seen; see the blockers (LS030),
which name each line that reads a GPU value on the host.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, constraints.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import branches, decides_on_the_host
from launchscope.rules.rule import Rule

_BRANCH = (
    "Replace the branch by torch.where or a mask, or keep it outside of the captured part and "
    "hold one graph per path."
)
_LBFGS = (
    "LBFGS decides by values how often it calls the closure: leave its step eager, and graph the "
    "model inside the closure (torch.cuda.make_graphed_callables)."
)


def check(profile: Profile) -> list[Finding]:
    if profile.shapes.stable is not False or not branches(profile):
        return []
    return [
        Finding(
            code="LS011",
            severity="warning",
            title="Steps with equal input shapes run different ops: "
            "control flow depends on data or on a counter",
            advice=_LBFGS if decides_on_the_host(profile) else _BRANCH,
            evidence={
                "signatures": len(profile.shapes.signatures),
                "steps": [signature.steps for signature in profile.shapes.signatures],
            },
        )
    ]


RULE = Rule("LS011", "Control flow depends on data", check, __doc__)
