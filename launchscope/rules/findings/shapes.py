"""# Steps have different shapes, or are of different kinds

## What it finds
- Input shapes that differ between the inspected steps, and what a graph gives the steps of each
  frequent shape.
- Forwards of different kinds, such as prefill and decode. One graph serves one kind, and the report
  measures the most frequent one.

## Why it matters
A CUDA graph replays fixed shapes. Each other shape needs a graph of its own, or padding.

## Example
Each batch pads its sequences to the longest one: 97, 101, 88. Padded to 128 they have one
shape. A key-value cache that grows by one in each step has one shape if you preallocate it.

## Before
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True)  # as long as the longest

## After
    tokens = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    tokens = F.pad(tokens, (0, 128 - tokens.size(1)))  # always 128

## When it does not apply
If only the ops or the number of model calls differ, the cause is control flow (LS011). Gradient
accumulation makes one longer step. Rare sizes can stay eager: each graph takes memory and a
capture.

## Reference
- [NVIDIA, Handling Dynamic Patterns](https://docs.nvidia.com/dl-cuda-graph/torch-cuda-graph/handling-dynamic-patterns.html)
- Metric `shape_signatures`; `step.kinds` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import MAX_BUCKETS
from launchscope.rules.rule import Findings, rule
from launchscope.rules.shape_change import (
    distinct_inputs,
    every_step_differs,
    growth,
)
from launchscope.rules.verdict.obstacles import Obstacle, obstacle_of
from launchscope.wording import first_shapes, listed, ms, pct, plural, shapes


@rule("LS010", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "growth", "padding")
    if obstacle is not None:
        yield _changes(profile, obstacle)
        yield from _graph_per_shape(profile)
        yield from _padded(profile)
    yield from _kinds(profile)


def _changes(profile: Profile, obstacle: Obstacle) -> Finding:
    distinct, grown = distinct_inputs(profile), growth(profile)
    steps = sum(signature.steps for signature in profile.shapes.signatures)
    few = distinct <= MAX_BUCKETS
    title = f"Input shapes change: {distinct} different ones in {steps} inspected steps"
    advice = f"{obstacle.fix}. Drop a smaller last batch of an epoch (drop_last=True)."
    if grown is not None:
        more = f" (and {plural(grown.tensors - 1, 'more input')})" if grown.tensors > 1 else ""
        title = f"An input grows by one from step to step: {grown}{more}"
    elif every_step_differs(profile):
        title = f"Input shapes are different in each of the {steps} inspected steps"
    elif not few:
        advice += (
            " You can also capture only the part of the step that has fixed shapes "
            "(torch.cuda.make_graphed_callables)."
        )
    return RULE.finding("advice" if few else "warning", title, advice)


def _graph_per_shape(profile: Profile) -> Findings:
    for shape in profile.replay.shapes:
        yield RULE.finding(
            "info",
            f"A graph for inputs of {shapes(shape.inputs) or 'the usual shape'}, which "
            f"{pct(shape.share_pct)} of the steps have, takes {ms(shape.replay_ms)} instead of "
            f"{ms(shape.eager_ms)}",
        )


def _padded(profile: Profile) -> Findings:
    padding = profile.replay.padding_pct
    advice = f"The replays include the work on padding: {pct(padding or 0.0)} of all padded inputs."
    for padded in profile.replay.padded:
        yield RULE.finding(
            "info",
            f"Padded to {first_shapes(padded.inputs)}, {pct(padded.share_pct)} of the steps take "
            f"{ms(padded.replay_ms)} in a graph; eager they take {ms(padded.eager_ms)} on average",
            advice if padding else "",
        )


def _kinds(profile: Profile) -> Findings:
    kinds = profile.step.kinds if profile.step is not None else ()
    if len(kinds) < 2:
        return
    ordered = sorted(kinds, key=lambda kind: -kind.share_pct)
    named = listed([f"{kind.name} ({pct(kind.share_pct)})" for kind in ordered])
    advice = f"Capture {ordered[0].name} in a graph of its own and leave the rest eager."
    yield RULE.finding("info", f"The script has several kinds of steps: {named}", advice)
