"""# Some steps replay no graph

## What it finds
A trace in which some steps launch CUDA graphs and others none, with the names of the others.

## Why it matters
A serving engine captures a graph for some batch sizes and runs the others eagerly. The gain of more
graphs is what predicted replays take off these steps.

## Example
Graphs for 1, 2, 4 and 8 sequences, and batches of 12 and 16 that run eagerly.

## Before
    graphs = {size: capture(size) for size in (1, 2, 4, 8)}  # 12 and 16 run eagerly

## After
    graphs = {size: capture(size) for size in (1, 2, 4, 8, 12, 16)}

## When it does not apply
Rare sizes can stay eager: each graph takes memory and a capture.

## Reference
- [vLLM, CUDA graphs](https://docs.vllm.ai/en/latest/design/cuda_graphs/)
  `cudagraph_capture_sizes`
- [SGLang, server arguments](https://docs.sglang.ai/advanced_features/server_arguments.html)
  `--cuda-graph-bs`
- `step_groups` in the Profile, metric `more_graphs_pct`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import WORTH_FIXING_PCT
from launchscope.rules.rule import Findings, rule
from launchscope.wording import listed_first, pct, plural

_MOST_NAMES = 5


@rule("LS013", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    eager = [group for group in profile.step_groups if not group.graph_launches]
    if not eager:
        return
    count, steps = (sum(group.steps for group in each) for each in (eager, profile.step_groups))
    named = [f"{group.name} ({group.steps:,})" for group in eager if group.name is not None]
    which = f": {listed_first(named, _MOST_NAMES)}" if named else ""
    gain = profile.metrics.get("more_graphs_pct")
    worth = gain is not None and gain.value is not None and gain.value >= WORTH_FIXING_PCT
    yield RULE.finding(
        "advice" if worth else "info",
        f"{count:,} of {plural(steps, 'step')} launch{'es' * (count == 1)} no CUDA graph{which}",
        _gain(profile),
        more_graphs_pct=None if gain is None else gain.value,
        eager_steps=count,
        steps=steps,
    )


def _gain(profile: Profile) -> str:
    gain = profile.metrics.get("more_graphs_pct")
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return "What graphs for them would give was not measured."
    bounds = f"({pct(gain.low)} to {pct(gain.high)}, predicted from the trace)"
    if gain.value <= 0:
        return f"Graphs for them would not shorten the average iteration {bounds}."
    return f"Graphs for them would shorten the average iteration by {pct(gain.value)} {bounds}."
