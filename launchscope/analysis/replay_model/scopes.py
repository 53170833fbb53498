"""Captures of a first part of the step: what each gives, and which stands in for the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from launchscope.analysis.replay_model.replay import replay_times
from launchscope.model import Recording, ReplayResult, ScopeReplay

__all__ = ["scope_replays", "with_largest_scope"]


def with_largest_scope(recording: Recording) -> Recording:
    """The recording with forward and backward in place of a whole step that was not captured.

    The forward alone does not take its place: what that leaves of an iteration is not known
    well enough to decide on.
    """
    whole, part = recording.replay, recording.scope_forward_backward
    if whole is None or whole.status not in ("blocked", "failed"):
        return recording
    if part is None or part.status != "measured":
        return recording
    note = f"the whole step was not captured: {whole.reason or 'no reason was given'}"
    return replace(recording, replay=part, notes=(*recording.notes, note))


def scope_replays(
    recording: Recording,
    iteration_ms: float | None,
    removable_pct: Callable[[ReplayResult], float | None],
) -> tuple[ScopeReplay, ...]:
    """Every smaller scope that was tried.

    `removable_pct` projects the iteration for one; where it cannot, what its part of the step
    saves is set against the iteration.
    """
    found = []
    for result in (recording.scope_forward_backward, recording.scope_forward):
        if result is None:
            continue
        times = replay_times(result)
        if times is None or not times.eager:
            found.append(ScopeReplay(result.scope, result.status, result.reason))
            continue
        eager, replayed = median(times.eager), median(times.replay)
        share = removable_pct(result)
        if share is None and iteration_ms:
            share = 100.0 * (eager - replayed) / iteration_ms
        found.append(
            ScopeReplay(result.scope, result.status, result.reason, eager, replayed, share)
        )
    return tuple(found)
