"""# The script uses torch.compile

## What it finds
A step with compiled code in it.

## Why it matters
Everything was measured compiled. torch.compile brings CUDA graphs of its own, which is less
work than a capture by hand: `mode="reduce-overhead"`. It checks that a capture is possible,
never whether it pays; these figures say that.

## Example
`model = torch.compile(model, mode="reduce-overhead")`

## When it does not apply
Where the step already runs inside graphs (LS008).

## Reference
PyTorch documentation of torch.compile. TORCH_LOGS=cudagraphs,perf_hints shows what it skipped.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import already_graphed
from launchscope.rules.rule import Rule


def check(profile: Profile) -> list[Finding]:
    compiled = profile.step is not None and profile.step.compiled
    if not compiled or already_graphed(profile):
        return []
    return [
        Finding(
            code="LS037",
            severity="info",
            title="The script uses torch.compile, and was measured compiled",
            advice='Try torch.compile(..., mode="reduce-overhead") before a capture by hand, and '
            "profile again.",
            evidence={"compiled": True},
        )
    ]


RULE = Rule("LS037", "The script uses torch.compile", check, __doc__)
