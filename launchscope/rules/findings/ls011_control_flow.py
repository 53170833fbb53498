"""# Control flow depends on data

## What it finds
Steps that have equal input shapes and run different ops, or call the model a different number
of times.

## Why it matters
A capture records one path, and a replay takes that path for every batch. Where eager code
would take another path, the result is wrong without an error.

## Example
`if loss > limit: clip(grads)` is recorded either with or without the clipping. `torch.where`
keeps both in the graph. An episode of 5 to 12 forward calls before one backward runs different
ops for each length, although each forward has the same input shapes.

## When it does not apply
A branch on a Python value that never changes after the warm-up, such as a flag, is safe.
launchscope does not see a branch that all inspected steps took the same way. LS030 names each
line that reads a GPU value on the host.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, constraints.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import decides_on_the_host
from launchscope.rules.rule import Findings, Rule
from launchscope.rules.shape_change import branches, calls_change, calls_seen
from launchscope.wording import listed

_BRANCH = (
    "Replace the branch with torch.where or a mask. You can also keep the branch outside the "
    "captured part, with one graph per path."
)
_LBFGS = (
    "Leave the step of LBFGS eager, because it decides by values how often it calls the closure. "
    "Graph the model inside the closure (torch.cuda.make_graphed_callables)."
)
_CALLS = (
    "Make the same number of calls in every step: run each to a fixed length, and mask what is "
    "beyond its end. You can also capture the forward alone (torch.cuda.make_graphed_callables)."
)


def check(profile: Profile) -> Findings:
    if profile.shapes.stable is not False or not branches(profile):
        return
    title = "Steps with equal input shapes run different ops"
    advice, calls = _BRANCH, calls_seen(profile)
    if decides_on_the_host(profile):
        advice = _LBFGS
    elif calls_change(profile):
        advice = _CALLS
        counts = listed([str(count) for count in calls])
        title = f"Steps with equal input shapes call the model {counts} times"
    yield RULE.finding(
        "warning",
        f"{title}: control flow depends on data or on a counter",
        advice,
        forwards=calls,
        signatures=len(profile.shapes.signatures),
        steps=[signature.steps for signature in profile.shapes.signatures],
    )


RULE = Rule("LS011", check, __doc__, fixable=True)
