"""# A replay does other work than eager, or its result differs

## What it finds
- Kernels that ran in the replay but not in eager execution, or the reverse, and that take at
  least 2 % of the GPU time. Both run with the same optimizer flags.
- A replay whose parameter updates differ from the eager ones by more than 0.1 %, and by more than
  ten times what two replays of one batch differ. All start from the same state, with the same
  batch. Where the cause is known, it is named with its line.

## Why it matters
Library code can ask whether a capture is running and take another path. A tensor that a step hands
to the next, a branch, or work on another stream is what it was during the capture. Training then
goes wrong without an error.

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
Kernels that `capturable=True` adds are in both runs and do not count. A number that the capture
freezes is LS035. A step that writes no state (inference) is compared by its outputs, or not at all
(LS004).

## Reference
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
- `replay.work` and `replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Cause, Correctness, Finding, Profile, WorkComparison
from launchscope.reason_text import cause_text, reason_text
from launchscope.rules.rule import Findings, Rule, rule
from launchscope.wording import figures, pct, plural

# The causes that LS035 reports.
NUMBERS = ("learning_rate", "hyperparameter", "scalar")
_ADVICE = {
    "branch": "Make every step take the same path (torch.where in place of if), or capture one "
    "graph for each path and choose between them outside.",
    "cross_step_state": "Update it in place inside the step (state.copy_(new)), so that it stays "
    "at the address that the graph reads. You can also copy it there before each replay.",
    "unjoined_stream": "Fork the side stream inside the step "
    "(side.wait_stream(torch.cuda.current_stream())) and join it before the step ends.",
}


@rule("LS033", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    work, correct = profile.replay.work, profile.replay.correct
    if work.same is False:
        yield _other_work(work)
    for cause in correct.distinct_causes:
        if cause.kind not in NUMBERS:
            yield finding_of(RULE, cause, _ADVICE[cause.kind])
    if correct.status == "different" and not correct.causes:
        yield _unexplained(correct)


def codes_of(correct: Correctness) -> list[str]:
    """The rules that name the causes, in their order."""
    codes = ["LS035" if cause.kind in NUMBERS else "LS033" for cause in correct.causes]
    return list(dict.fromkeys(codes)) or ["LS033"]


def finding_of(rule: Rule, cause: Cause, advice: str) -> Finding:
    text = cause_text(cause)
    return rule.finding("error", text[0].upper() + text[1:], advice, cause.where)


def _other_work(work: WorkComparison) -> Finding:
    added, removed = sum(k.count for k in work.added), sum(k.count for k in work.removed)
    added_us = sum(k.total_us for k in work.added)
    removed_us = sum(k.total_us for k in work.removed)
    largest = max((*work.added, *work.removed), key=lambda k: k.total_us, default=None)
    named = "" if largest is None else f" The largest difference is {largest.name[:80]}."
    return RULE.finding(
        "error",
        f"The captured step runs different GPU work: it adds {plural(added, 'kernel')} "
        f"({figures(added_us)} us) and leaves out {removed:,} ({figures(removed_us)} us)",
        "Find the code that asks whether a capture is running "
        "(torch.cuda.is_current_stream_capturing) and make it choose the same path in both runs: "
        f"pass an explicit attention mask, or set the attention implementation.{named}",
    )


def _unexplained(correct: Correctness) -> Finding:
    largest, floor = correct.max_update_diff, correct.noise_floor
    by = f" by up to {pct(100 * largest)} of an update" if largest else ""
    over = f" over {plural(correct.steps, 'batch')}" if correct.steps else ""
    reason = f" ({reason_text(correct.reason)})" if correct.reason else ""
    if floor:
        reason += f"; two replays of one batch differ by {pct(100 * floor)}"
    return RULE.finding(
        "error",
        f"The result of the replay differs from eager{by}{over}{reason}",
        "Look for Python values that change from step to step (counters, temperatures, "
        "branches), for inputs that each step creates instead of copying them into the same "
        "tensor, and for work on streams of your own.",
    )
