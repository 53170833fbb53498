"""What runs tell by themselves, before they are compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from launchscope.adopt.observation import COMPARED
from launchscope.adopt.observed_runs import ObservedRun, RankRun
from launchscope.reason_text import cause_of_death

# Medians of two runs of one version that differ by more say that something else uses the machine.
_UNSTEADY_PCT = 15.0


def from_the_start(run: ObservedRun) -> bool:
    """Whether the first steps, too, began with states of the original."""
    firsts = [of.result.restored[:1] for of in run.ranks if of.result is not None]
    return all(first and first[0] < COMPARED for first in firsts)


def apart(run: ObservedRun) -> int:
    """The units between two steps of a run, if they are equally far from each other."""
    return math.gcd(*(state.unit for of in run.ranks for state in of.states))


def computes(run: ObservedRun) -> bool:
    """Whether the steps leave anything: outputs, or another state."""
    return any(of.states[0].digests != of.states[-1].digests for of in run.ranks)


def error_of(run: RankRun) -> str:
    """The last that a run printed which failed, or the signal that ended it."""
    lines = [line for line in run.said_last.splitlines() if line.strip()]
    if run.end.raised is None and (run.end.exit_code or 0) < 0:
        return f"ended by {cause_of_death(run.end.exit_code or 0)}"
    return lines[-1].strip()[:300] if lines else "no message"


def are_steady(runs: Sequence[ObservedRun]) -> bool:
    """Whether two of these runs of one version took about as long."""
    medians = sorted(median(windows) for run in runs if (windows := windows_of(run)))
    near = 1 + _UNSTEADY_PCT / 100
    return len(medians) < 2 or any(b <= a * near for a, b in itertools.pairwise(medians))


def has_looked(run: ObservedRun) -> bool:
    return all(rank.held for rank in run.ranks)


def made_graphs(runs: Sequence[ObservedRun]) -> bool:
    return all(run.result is not None and run.result.graphs for run in runs)


def windows_of(*runs: ObservedRun) -> tuple[float, ...]:
    return tuple(ms for run in runs if run.result is not None for ms in run.result.window_ms)


def why_eager(run: ObservedRun) -> str:
    """The words of `graphed` for most of its eager calls; of the rank whose they are, before those
    of ranks that had to follow it."""
    known = [
        (reason[0] != "ranks", reason[3], of.rank, reason)
        for of in run.ranks
        for reason in (() if of.result is None else of.result.reasons)
        if reason[0] != "warmup"
    ]
    if not known:
        return "it was not captured"
    *_, rank, (code, text, where, _) = max(known)
    named = f"rank {rank}: {text}" if len(run.ranks) > 1 and code != "ranks" else text
    return f"{named} [{Path(where).name}]" if where else named
