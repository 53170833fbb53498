"""# Input shapes change from step to step

## What it finds
Input shapes that differ between the inspected steps.

## Why it matters
A CUDA graph replays fixed shapes. Each other shape needs a graph of its own, or padding.

## Example
Each batch pads its sequences to the longest one: 97, 101, 88. Padded to 128 they have one
shape. A key-value cache that grows by one in each step has one shape if you preallocate it.

A data loader of 250 samples in batches of 8 ends each epoch with a batch of 2. One such step is
left out of the inspection, with a note.

## Before
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True)  # as long as the longest

## After
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    tokens = F.pad(tokens, (0, 128 - tokens.size(1)))  # always 128

## When it does not apply
If only the ops or the number of model calls differ, the cause is control flow (LS011).

## Reference
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
- Metric `shape_signatures`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import MAX_BUCKETS
from launchscope.rules.rule import Findings, rule
from launchscope.rules.shape_change import (
    distinct_inputs,
    every_step_differs,
    growth,
    longest_replayed,
    shorter_batch,
)
from launchscope.rules.verdict.obstacles import obstacle_of
from launchscope.wording import first_shapes, ms, pct, plural, shapes


@rule("LS010", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "LS010")
    if obstacle is None:
        return
    for shape in profile.replay.shapes:
        yield RULE.finding(
            "info",
            f"A graph for inputs of {shapes(shape.inputs) or 'the usual shape'}, which "
            f"{pct(shape.share_pct)} of the steps have, takes {ms(shape.replay_ms)} instead of "
            f"{ms(shape.eager_ms)}",
            "",
            share_pct=shape.share_pct,
            eager_ms=shape.eager_ms,
            replay_ms=shape.replay_ms,
        )
    longest = longest_replayed(profile)
    for padded in profile.replay.padded:
        padding = profile.replay.padding_pct
        what = f"Padded to {first_shapes(padded.inputs)}"
        advice = ""
        if padding:
            advice = (
                f"The replays include the work on padding: {pct(padding)} of all padded inputs."
            )
        if longest is not None:
            what = f"Replayed at the longest length seen ({longest:,})"
            advice = (
                "The replay stands for every length: with a preallocated cache one graph would "
                "serve them all. It still copies the cache to make it longer, and attends to "
                f"{longest:,} positions."
            )
        yield RULE.finding(
            "info",
            f"{what}, {pct(padded.share_pct)} of the steps take {ms(padded.replay_ms)} in a graph; "
            f"eager they take {ms(padded.eager_ms)} on average",
            advice,
            share_pct=padded.share_pct,
            eager_ms=padded.eager_ms,
            replay_ms=padded.replay_ms,
            padding_pct=padding,
        )
    distinct, grown = distinct_inputs(profile), growth(profile)
    steps = sum(signature.steps for signature in profile.shapes.signatures)
    few = distinct <= MAX_BUCKETS
    title = f"Input shapes change: {distinct} different ones in {steps} inspected steps"
    advice = f"{obstacle.fix}."
    if grown is not None:
        more = f" (and {plural(grown.tensors - 1, 'more input')})" if grown.tensors > 1 else ""
        title = f"An input grows by one from step to step: {grown}{more}"
    elif (sizes := shorter_batch(profile)) is not None:
        title = (
            f"One of {steps} inspected steps had smaller inputs: {sizes[1]} instead of {sizes[0]} "
            "in the first dimension"
        )
        advice = (
            "If this is the last batch of an epoch, drop it (DataLoader(..., drop_last=True)) or "
            "run it eagerly, and one graph serves all other batches. Otherwise pad the inputs."
        )
    elif every_step_differs(profile):
        title = f"Input shapes are different in each of the {steps} inspected steps"
    elif not few:
        advice += (
            " You can also capture only the part of the step that has fixed shapes "
            "(torch.cuda.make_graphed_callables)."
        )
    yield RULE.finding(
        "advice" if few else "warning",
        title,
        advice,
        distinct=distinct,
        grows=None if grown is None else str(grown),
        observed_steps=steps,
        inputs=[shapes(signature.inputs) for signature in profile.shapes.signatures],
    )
