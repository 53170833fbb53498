"""# The script has several kinds of steps

## What it finds
Forwards of different kinds, such as prefill and decode.

## Why it matters
One graph serves one kind. The report measures the most frequent kind.

## Example
One prefill of 512 tokens, then 100 decodes of one token each: only the decode is worth a graph.

## Before
    for rows in requests:  # prefills of many rows, decodes of one
        out = model(rows)

## After
    for rows in requests:
        out = graphed_decode(rows) if len(rows) == 1 else model(rows)

## When it does not apply
Gradient accumulation and several optimizers make one longer step, not several kinds.

## Reference
- [NVIDIA, Handling Dynamic Patterns](https://docs.nvidia.com/dl-cuda-graph/torch-cuda-graph/handling-dynamic-patterns.html)
- `step.kinds` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.rules.shape_change import every_step_differs, growth
from launchscope.wording import listed, pct


@rule("LS012", __doc__)
def RULE(profile: Profile) -> Findings:
    kinds = profile.step.kinds if profile.step is not None else ()
    if len(kinds) < 2:
        return
    ordered = sorted(kinds, key=lambda kind: -kind.share_pct)
    named = listed([f"{kind.name} ({pct(kind.share_pct)})" for kind in ordered])
    advice = f"Capture {ordered[0].name} in a graph of its own and leave the rest eager."
    if growth(profile) is not None:
        advice += " Its inputs have to keep one size first (LS010)."
    elif every_step_differs(profile):
        advice += " Pad its inputs to a few sizes first (LS010)."
    yield RULE.finding(
        "info",
        f"The script has several kinds of steps: {named}",
        advice,
        kinds={kind.name: kind.share_pct for kind in ordered},
    )
