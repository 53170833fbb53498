"""# Share of the iteration that a replay removes

## What it finds
How much shorter an iteration (from the end of one step to the end of the next) gets if a CUDA
graph replays the step with its inputs copied in: measured, or else predicted.

## Why it matters
This share, beside `--threshold` (15 % by default), decides: the iteration is what you wait for.

## Example
A step of 555 small kernels takes 9.0 ms eagerly and 3.1 ms replayed. Data loading between
steps takes 0.4 ms, so the iteration goes from 9.4 ms to 3.5 ms: the replay removes 63 % of it.

## When it does not apply
Without timed steps (a rehearsal, or `--timing 0`) there is no iteration to take a share of.

## Reference
- [PyTorch, CUDA semantics: CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs)
- Metric `removable_pct`.
"""

from __future__ import annotations

from dataclasses import asdict

from launchscope.model import Profile
from launchscope.rules.profile_queries import Gain, gain
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, share_of


@rule("LS001", __doc__)
def RULE(profile: Profile) -> Findings:
    found = gain(profile)
    if found is not None:
        yield RULE.finding(
            "info",
            f"A replay {_effect(found, _iteration(profile))} "
            f"(your threshold is {pct(found.threshold_pct)})",
            **asdict(found),
            **profile.values("iteration_ms", "replayed_iteration_ms"),
        )


def _iteration(profile: Profile) -> str:
    """The one that the gain is of: where some steps replay a graph already, not each."""
    return "the median iteration" if profile.step_groups else "the iteration"


def _effect(found: Gain, iteration: str) -> str:
    estimated = not found.is_measured
    once = " once the blocking lines are fixed" if found.basis == "what_if" else ""
    removed = found.removable_pct
    if removed <= -0.05:  # what rounds to 0.0 % is nothing
        verb = "is predicted to make" if estimated else "makes"
        within = "" if found.is_loss else ", which is within the spread of the timings"
        return f"{verb} {iteration} {pct(-removed)} longer{once}{within}"
    verb = "is predicted to remove" if estimated else "removes"
    return f"{verb} {share_of(removed, found.threshold_pct)} {iteration}{once}"
