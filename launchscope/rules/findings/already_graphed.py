"""# The step already runs inside CUDA graphs, or in compiled code

## What it finds
The share of the step's kernels that the script launches through CUDA graphs already, and a step
that contains compiled code.

## Why it matters
`torch.compile(mode="reduce-overhead")`, `make_graphed_callables` and some libraries use graphs
of their own. Only the launches outside these graphs can still be removed. torch.compile does not
check whether graphs pay: the figures of this report, which are of the compiled step, answer that.

## Example
97 % of the kernels come from 3 graph launches per step, so there is nothing to adopt.

## When it does not apply
With less than half of the kernels in graphs, the verdict weighs a graph of the whole step as usual.

## Reference
- [PyTorch, torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html):
  `TORCH_LOGS=cudagraphs,perf_hints` shows what it skips.
- Fact `graph_kernel_share_pct`, metric `graph_launches_per_step`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import already_graphed, runs_torch
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, plural


@rule("LS008", __doc__)
def RULE(profile: Profile) -> Findings:
    share = profile.facts.graph_kernel_share_pct
    if share is not None and share >= 1.0:
        launches = profile.value("graph_launches_per_step")
        per, whose = " per step", "in a step"
        if profile.step is not None and profile.step.boundary == "none":
            per, whose = "", "in the trace"
        count = f" ({plural(launches, 'graph launch')}{per})" if launches else ""
        advice = "Look at the kernels that are still launched one by one."
        if runs_torch(profile):
            advice += (
                " With torch.compile, TORCH_LOGS=cudagraphs,perf_hints names the parts that it "
                "leaves out or records again."
            )
        title = f"{pct(share)} of the kernels {whose} already run inside CUDA graphs{count}"
        yield RULE.finding("info", title, advice)
    if profile.step is not None and profile.step.compiled and not already_graphed(profile):
        yield RULE.finding(
            "info",
            "The script uses torch.compile, and all figures are of the compiled step",
            _skipped(profile.facts.skipped_graphs),
        )


def _skipped(reasons: tuple[str, ...]) -> str:
    """What to do about a compiled step without graphs, by why Inductor left some out."""
    if not reasons:
        return (
            'Try torch.compile(..., mode="reduce-overhead") before you write a capture yourself, '
            "and profile again."
        )
    return (
        f"Inductor made no CUDA graph for {plural(len(reasons), 'compiled part')} "
        f"({'; '.join(dict.fromkeys(reasons))}). Keep what the step changes in place out of its "
        "inputs, and its tensors on the GPU."
    )
