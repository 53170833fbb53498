"""# The script uses torch.compile

## What it finds
A step that contains compiled code.

## Why it matters
All figures are those of the compiled step. With `mode="reduce-overhead"`, torch.compile captures
CUDA graphs for you. It does not check whether they pay: the figures of this report answer that.

## Example
A model that is compiled without graphs.

## When it does not apply
If the step already runs inside graphs (LS008).

## Reference
- [PyTorch, torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)
- `TORCH_LOGS=cudagraphs,perf_hints` shows what it skips.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import already_graphed
from launchscope.rules.rule import Findings, rule


@rule("LS037", __doc__)
def RULE(profile: Profile) -> Findings:
    if profile.step is not None and profile.step.compiled and not already_graphed(profile):
        yield RULE.finding(
            "info",
            "The script uses torch.compile, and all figures are of the compiled step",
            'Try torch.compile(..., mode="reduce-overhead") before you write a capture yourself, '
            "and profile again.",
        )
