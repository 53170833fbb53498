"""# What a replay removes from the iteration

## What it finds
- How much shorter an iteration (from the end of one step to the end of the next) gets if a CUDA
  graph replays the step with its inputs copied in: measured, or else predicted.
- Whether the spread of the timings leaves open if that is a gain, or on which side of your
  threshold it is. In a trace by itself, long gaps between launches can leave it open as well:
  whether a replay removes them is unknown.

## Why it matters
This share, beside `--threshold` (15 % by default), decides: the iteration is what you wait for. A
gain within the spread does not count, because the next run could show a loss.

## Example
A step of 555 small kernels takes 9.0 ms eagerly and 3.1 ms replayed. Data loading between
steps takes 0.4 ms, so the iteration goes from 9.4 ms to 3.5 ms: the replay removes 63 % of it.

## When it does not apply
Without timed steps (a rehearsal, or `--timing 0`) there is no iteration to take a share of.

## Reference
- [PyTorch, CUDA semantics: CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs)
- Metrics `removable_pct`, `iteration_ms`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import Gain, effect, gain, more_steps
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, pct_beside


@rule("LS001", __doc__)
def RULE(profile: Profile) -> Findings:
    found = gain(profile)
    if found is None:
        return
    once = " once the blocking lines are fixed" if found.basis == "what_if" else ""
    threshold = f"your threshold is {pct(found.threshold_pct)}"
    yield RULE.finding("info", f"A replay {effect(profile, found)}{once}; {threshold}")
    if found.is_open or not (found.beyond_spread or found.is_loss):
        yield _within_spread(profile, found)


def _within_spread(profile: Profile, found: Gain) -> Finding:
    undecided = found.high_pct >= found.threshold_pct
    advice = f"Profile again on an idle machine{more_steps(profile)}."
    if not undecided:
        advice = "Even the upper bound is below your threshold."
    elif profile.mode == "trace":
        advice = "Profile the script itself: launchscope profile train.py. A trace is not enough."
    what = "The gain is within the spread of the timings"
    if found.beyond_spread:
        what = "The gain may be on either side of your threshold"
    if found.rests_on_unsure:
        what = "The gain depends on long gaps between launches, which a replay may keep"
    high = pct_beside(found.high_pct, found.threshold_pct)
    title = f"{what}: between {pct(found.low_pct)} and {high} of the iteration"
    return RULE.finding("warning" if undecided else "info", title, advice)
