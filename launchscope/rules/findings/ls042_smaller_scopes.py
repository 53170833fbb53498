"""# A smaller part of the step can be captured

## What it finds
The gain of a capture of forward and backward, or of the forward, if the whole step allows none.

## Why it matters
The line that stops the capture may be in the optimizer part alone, as GradScaler's `.item()` is.

## Example
fp16 with a GradScaler: forward and backward take 1.1 ms in a graph in place of 3.2 ms.

## When it does not apply
If the whole step was captured, or if a blocking line is in the forward.

## Reference
- [PyTorch, make_graphed_callables](https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html)
- `replay.scopes` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import PARTS
from launchscope.rules.rule import Findings, rule
from launchscope.wording import ms, pct

_ADVICE = (
    "Capture this part in a graph and run the rest of the step after each replay. "
    "torch.cuda.make_graphed_callables does this for a model without hooks that takes and returns "
    "only tensors."
)


@rule("LS042", __doc__)
def RULE(profile: Profile) -> Findings:
    for scope in profile.replay.scopes:
        if scope.status != "measured" or scope.replay_ms is None or scope.eager_ms is None:
            continue
        removed = scope.removable_pct
        share = "nothing from" if removed is None or removed <= 0 else f"{pct(removed)} of"
        gain = "" if removed is None else f" and removes {share} the iteration"
        yield RULE.finding(
            "info",
            f"A graph of {PARTS.get(scope.scope, scope.scope)} alone takes {ms(scope.replay_ms)} "
            f"instead of {ms(scope.eager_ms)}{gain}",
            _ADVICE if removed is None or removed > 0 else "",
            scope=scope.scope,
            eager_ms=scope.eager_ms,
            replay_ms=scope.replay_ms,
            removable_pct=removed,
        )
