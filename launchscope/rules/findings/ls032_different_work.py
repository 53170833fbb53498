"""# The captured step runs different GPU work

## What it finds
Kernels that ran in the replay but not in eager execution, or the reverse, and that take at
least 2 % of the GPU time. Both run with the same optimizer flags.

## Why it matters
Library code can ask whether a capture is running and take another path. The replay then
measures different work, which is often slower, and its result can differ from eager's.

## Example
BERT without an attention mask: during a capture the library builds a full mask, and attention
falls back from the flash kernel to the math path, with 425 operations in place of 178.

## Before
    mask = None
    if torch.cuda.is_current_stream_capturing():  # another path during a capture
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

## After
    out = F.scaled_dot_product_attention(q, k, v)

## When it does not apply
Kernels that `capturable=True` adds are in both runs and do not count.

## Reference
- [PyTorch, scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
- `replay.work` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import figures, plural


@rule("LS032", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    work = profile.replay.work
    if work.same is not False:
        return
    added, removed = sum(k.count for k in work.added), sum(k.count for k in work.removed)
    added_us = sum(k.total_us for k in work.added)
    removed_us = sum(k.total_us for k in work.removed)
    largest = max((*work.added, *work.removed), key=lambda k: k.total_us, default=None)
    named = "" if largest is None else f" The largest difference is {largest.name[:80]}."
    yield RULE.finding(
        "error",
        f"The captured step runs different GPU work: it adds {plural(added, 'kernel')} "
        f"({figures(added_us)} us) and leaves out {removed:,} ({figures(removed_us)} us)",
        "Find the code that asks whether a capture is running "
        "(torch.cuda.is_current_stream_capturing) and make it choose the same path in both runs: "
        f"pass an explicit attention mask, or set the attention implementation.{named}",
        added=added,
        removed=removed,
        added_us=added_us,
        removed_us=removed_us,
    )
