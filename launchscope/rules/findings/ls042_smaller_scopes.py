"""# A smaller part of the step can be captured

## What it finds
The gain from a capture of only the forward and backward, or of only the forward, if the whole
step cannot be captured as it is. The rest of the step stays eager.

## Why it matters
The line that stops the capture may be in the optimizer part alone, such as the `.item()` with
which GradScaler reads `found_inf`. You can then capture the larger part without changing that
line.

## Example
fp16 with a GradScaler: forward and backward take 1.1 ms in a graph in place of 3.2 ms, and the
optimizer step stays as it is.

## When it does not apply
If the whole step was captured, or if a blocking line is in the forward.

## Reference
`replay.scopes` in the Profile. PyTorch documentation of torch.cuda.make_graphed_callables.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.wording import ms, pct

NAMES = {"forward_backward": "forward and backward", "forward": "the forward"}


def check(profile: Profile) -> list[Finding]:
    found = []
    for scope in profile.replay.scopes:
        if scope.status != "measured" or scope.replay_ms is None or scope.eager_ms is None:
            continue
        name = NAMES.get(scope.scope, scope.scope)
        gain = ""
        if scope.removable_pct is not None:
            gain = f", {pct(max(0.0, scope.removable_pct))} off the iteration"
        found.append(
            Finding(
                code="LS042",
                severity="info",
                title=f"{name[0].upper()}{name[1:]} alone can be captured as it stands: "
                f"{ms(scope.replay_ms)} in place of {ms(scope.eager_ms)}{gain}",
                advice="Capture this part in a graph and run the rest of the step after each "
                "replay. torch.cuda.make_graphed_callables does this for a model without hooks "
                "that takes and returns tensors only.",
                evidence={
                    "scope": scope.scope,
                    "eager_ms": scope.eager_ms,
                    "replay_ms": scope.replay_ms,
                    "removable_pct": scope.removable_pct,
                },
            )
        )
    return found


RULE = Rule("LS042", check, __doc__)
