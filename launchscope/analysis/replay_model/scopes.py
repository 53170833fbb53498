"""Captures of a first part of the step: what each gives, and which stands in for the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from launchscope.analysis.replay_model.replay import MeasuredReplay, measured_replay
from launchscope.model import Recording, ScopeReplay


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
    removable_pct: Callable[[MeasuredReplay], float | None] | None = None,
) -> tuple[ScopeReplay, ...]:
    """Every smaller scope that was tried.

    `removable_pct` projects the iteration for one. Where it cannot, the share is what the part of
    the step saves.
    """
    found = []
    for result in (recording.scope_forward_backward, recording.scope_forward):
        if result is None:
            continue
        replay = measured_replay(result)
        if replay is None or not replay.eager_ms:
            found.append(ScopeReplay(result.scope, result.status, result.reason))
            continue
        eager = median(replay.eager_ms)
        share = removable_pct(replay) if removable_pct is not None else None
        if share is None and iteration_ms:
            share = 100.0 * (eager - replay.ms) / iteration_ms
        found.append(
            ScopeReplay(result.scope, result.status, result.reason, eager, replay.ms, share)
        )
    return tuple(found)
