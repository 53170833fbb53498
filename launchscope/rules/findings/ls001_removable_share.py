"""# Share of the iteration that a replay removes

## What it finds
How much shorter an iteration gets if a CUDA graph replays its step. An iteration is the time
from the end of one step to the end of the next. The inputs are copied in before each replay,
and the work between steps stays as it is. The share comes from the measured replay if there
is one, and from a prediction otherwise.

## Why it matters
This share decides. launchscope compares it with `--threshold` (15 % by default), because the
iteration is the time that you wait for. It reports a share below the threshold as well.

## Example
A step of 555 small kernels takes 9.0 ms eagerly and 3.1 ms replayed. Data loading between
steps takes 0.4 ms, so the iteration goes from 9.4 ms to 3.5 ms: the replay removes 63 % of it.

## When it does not apply
Without timed steps (a rehearsal, or `--timing 0`) there is no iteration to take a share of.

## Reference
PyTorch, CUDA semantics: CUDA Graphs. NVIDIA, CUDA Graph Best Practice for PyTorch.
Metric `removable_pct`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import Gain, gain
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import pct, pct_beside


def check(profile: Profile) -> Findings:
    found, threshold = gain(profile), profile.threshold_pct
    if found is not None:
        yield RULE.finding(
            "info",
            f"A replay {_effect(found, threshold)} (your threshold is {pct(threshold)})",
            removable_pct=found.removable_pct,
            low_pct=found.low_pct,
            high_pct=found.high_pct,
            step_removable_pct=found.step_pct,
            threshold_pct=threshold,
            basis=found.basis,
            **profile.values("iteration_ms", "projected_iteration_ms"),
        )


def _effect(found: Gain, threshold_pct: float) -> str:
    estimated = found.basis not in ("measured", "what_if")
    once = " once the blocking lines are fixed" if found.basis == "what_if" else ""
    removed = found.removable_pct
    if removed <= -0.05:  # what rounds to 0.0 % is nothing
        verb = "is predicted to make" if estimated else "makes"
        within = "" if found.is_loss else ", which is within the spread of the timings"
        return f"{verb} the iteration {pct(-removed)} longer{once}{within}"
    verb = "is predicted to remove" if estimated else "removes"
    share = "nothing from" if removed <= 0 else f"{pct_beside(removed, threshold_pct)} of"
    return f"{verb} {share} the iteration{once}"


RULE = Rule("LS001", check, __doc__)
