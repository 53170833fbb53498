"""# Steps have different shapes, or are of different kinds

## What it finds
- Input shapes that differ between the inspected steps, and what a graph gives the steps of each
  frequent shape.
- Forwards of different kinds, such as prefill and decode. One graph serves one kind, and the report
  measures the most frequent one.
- A trace in which some steps launch CUDA graphs and others none, as in a serving engine that
  captures a graph for some batch sizes only.

## Why it matters
A CUDA graph replays fixed shapes. Each other shape needs a graph of its own, or padding.

## Example
Each batch pads its sequences to the longest one: 97, 101, 88. Padded to 128 they have one
shape. A key-value cache that grows by one in each step has one shape if you preallocate it.
A server has graphs for 1, 2, 4 and 8 sequences, and batches of 12 run eagerly.

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
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
- [NVIDIA, Handling Dynamic Patterns](https://docs.nvidia.com/dl-cuda-graph/torch-cuda-graph/handling-dynamic-patterns.html)
- [vLLM, CUDA graphs](https://docs.vllm.ai/en/latest/design/cuda_graphs/)
  `cudagraph_capture_sizes`
- [SGLang, server arguments](https://docs.sglang.ai/advanced_features/server_arguments.html)
  `--cuda-graph-bs`
- Metrics `shape_signatures` and `more_graphs_pct`; `step.kinds` and `step_groups` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import MAX_BUCKETS, WORTH_FIXING_PCT
from launchscope.rules.rule import Findings, rule
from launchscope.rules.shape_change import (
    distinct_inputs,
    every_step_differs,
    growth,
)
from launchscope.rules.verdict.obstacles import Obstacle, obstacle_of
from launchscope.wording import first_shapes, listed, listed_first, ms, pct, plural, shapes

_MOST_NAMES = 5


@rule("LS010", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "growth", "padding")
    if obstacle is not None:
        yield _changes(profile, obstacle)
        yield from _graph_per_shape(profile)
        yield from _padded(profile)
    yield from _kinds(profile)
    yield from _more_graphs(profile)


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


def _more_graphs(profile: Profile) -> Findings:
    eager = [group for group in profile.step_groups if not group.graph_launches]
    if not eager:
        return
    count, steps = (sum(group.steps for group in each) for each in (eager, profile.step_groups))
    named = [f"{group.name} ({group.steps:,})" for group in eager if group.name is not None]
    which = f": {listed_first(named, _MOST_NAMES)}" if named else ""
    gain = profile.value("more_graphs_pct")
    yield RULE.finding(
        "advice" if gain is not None and gain >= WORTH_FIXING_PCT else "info",
        f"{count:,} of {plural(steps, 'step')} launch{'es' * (count == 1)} no CUDA graph{which}",
        _gain_of_graphs(profile),
    )


def _gain_of_graphs(profile: Profile) -> str:
    gain = profile.metrics.get("more_graphs_pct")
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return "What graphs for them would give was not measured."
    bounds = f"({pct(gain.low)} to {pct(gain.high)}, predicted from the trace)"
    if gain.value <= 0:
        return f"Graphs for them would not shorten the average iteration {bounds}."
    return f"Graphs for them would shorten the average iteration by {pct(gain.value)} {bounds}."
