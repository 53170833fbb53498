"""Captures of a part of the step: what each gains, and which one the verdict rests on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.analysis.replay_model.gain import scope_replays
from launchscope.analysis.replay_model.replay import with_largest_scope
from launchscope.model import Reason, Recording, ReplayResult, ReplayStatus
from tests.builders import recording

WHOLE = ReplayResult("failed", Reason("hung"))
PART = ReplayResult(
    "measured",
    scope="forward_backward",
    eager_bursts=((4.0, 4.0, 4.2), (4.0,)),
    replay_bursts=((1.0, 1.0, 1.1), (1.0,)),
)
FORWARD = ReplayResult("blocked", Reason("blocker_in_part", {"op": "aten.equal"}), scope="forward")


def recorded(folder: Path, **results: ReplayResult | None) -> Recording:
    return replace(recording(folder), **results)  # type: ignore[arg-type]


def test_every_scope_that_was_tried_has_its_times_or_its_reason(tmp_path: Path) -> None:
    rec = recorded(tmp_path, replay=WHOLE, scope_forward_backward=PART, scope_forward=FORWARD)
    larger, smaller = scope_replays(rec, 10.0)
    assert (larger.eager_ms, larger.replay_ms) == (4.0, 1.0)
    assert larger.removable_pct == pytest.approx(30.0)
    assert (smaller.status, smaller.reason) == ("blocked", FORWARD.reason)
    assert smaller.eager_ms is None


def test_forward_and_backward_replace_a_whole_step_that_failed(tmp_path: Path) -> None:
    rec = with_largest_scope(recorded(tmp_path, replay=WHOLE, scope_forward_backward=PART))
    assert rec.replay == PART
    assert "it did not end" in rec.notes[-1]


@pytest.mark.parametrize("status", ["what_if", "measured", "skipped"])
def test_forward_and_backward_do_not_replace_a_whole_step_that_was_captured(
    tmp_path: Path, status: ReplayStatus
) -> None:
    whole = replace(WHOLE, status=status)
    rec = recorded(tmp_path, replay=whole, scope_forward_backward=PART)
    assert with_largest_scope(rec) is rec


def test_the_profile_holds_the_scopes(tmp_path: Path) -> None:
    rec = recorded(tmp_path, replay=WHOLE, scope_forward_backward=PART, scope_forward=FORWARD)
    built = build_profile(rec)
    assert (built.replay.status, built.replay.scope) == ("measured", "forward_backward")
    assert [scope.scope for scope in built.replay.scopes] == ["forward_backward", "forward"]
