"""Which runs of the script a session plans: what is worth one, and what each may do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launchscope.model import Schedule, Target
from launchscope.runner.folder import SPEC_FILE
from launchscope.runner.outcome import ChildReport
from launchscope.runner.passes import all_passes
from launchscope.runner.session import RunOptions, _Session

LOOKS = ("timing_second", "timing_third")
EVERY = [kind.name for kind in all_passes() if kind.name not in ("sizes", "adoption")]


def planning(folder: Path, lacks: tuple[str, ...], schedule: Schedule | None = None) -> _Session:
    """A session that has the results of all passes but these."""
    target = Target("script", "train.py")
    session = _Session(target, schedule or Schedule(), RunOptions(), folder, lambda event: None)
    session.collected.on_gpu = True
    session.collected.results = {name: {} for name in EVERY if name not in lacks}
    return session


def test_no_run_is_made_for_another_look_at_the_times_alone(tmp_path: Path) -> None:
    session = planning(tmp_path, LOOKS)
    ended = ChildReport(script_ended=True, steps=40)
    assert session._why_again(ended, EVERY) == ""
    assert session._why_again(ChildReport(deferred=["timing_third"]), EVERY) == ""


def test_what_is_still_to_do_names_no_look(tmp_path: Path) -> None:
    session = planning(tmp_path, ("inspect", "replay", "verify", *LOOKS))
    died = ChildReport(current_pass="inspect", exit_code=-11)
    why = session._why_again(died, EVERY)
    assert "inspect, replay, verify" in why
    assert "timing" not in why


def test_a_short_script_gets_a_schedule_with_room_for_the_second_look(tmp_path: Path) -> None:
    session = planning(tmp_path, tuple(EVERY))
    steps = 60
    assert session._why_again(ChildReport(script_ended=True, steps=steps), EVERY)
    now = session.schedule
    passes = [name for name in EVERY if not name.startswith("scope_") and name != "timing_third"]
    taken = now.warmup + sum(session._steps_of(name) for name in passes if name != "replay_trace")
    assert now.timing_second >= 2
    assert taken <= steps


@pytest.mark.parametrize(
    ("lacks", "captures"),
    [(tuple(EVERY), False), (("replay", "replay_trace", "verify", *LOOKS), True)],
)
def test_a_script_that_is_to_go_on_never_shares_its_process_with_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, ...], captures: bool
) -> None:
    session = planning(tmp_path, lacks, Schedule(full=True))
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: None)
    monkeypatch.setattr(session._watch, "follow", lambda *args: None)
    session._run_child(list(lacks))
    spec: dict[str, Any] = json.loads((tmp_path / "run-1" / SPEC_FILE).read_text())
    assert spec["allow_captures"] is captures
    assert spec["stop_after"] is captures
