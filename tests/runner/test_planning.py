"""Which runs of the script a session plans: what is worth one, and what each may do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launchscope.model import Schedule, Target
from launchscope.runner.child.passes import all_passes
from launchscope.runner.parent.child_report import ChildReport, judge
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.session import RunOptions, _Session
from launchscope.runner.protocol.folder import SPEC_FILE, ResultFolder

EVERY = [kind.name for kind in all_passes() if kind.name not in ("sizes", "adoption")]


def planning(folder: Path, lacks: tuple[str, ...], schedule: Schedule | None = None) -> _Session:
    """A session that has the results of all passes but these."""
    target = Target("script", "train.py")
    session = _Session(target, schedule or Schedule(), RunOptions(), folder, lambda event: None)
    session.collected.on_gpu = True
    session.collected.results = {name: {} for name in EVERY if name not in lacks}
    return session


def test_a_run_that_brought_nothing_is_not_made_again(tmp_path: Path) -> None:
    session = planning(tmp_path, tuple(EVERY), Schedule(warmup=2, inspect=2))
    session.collected.on_gpu = False
    ended = ChildReport(script_ended=True, steps=4, on_gpu=False)
    assert "so every pass takes fewer" in session._why_again(ended, EVERY)
    assert session._why_again(ended, EVERY) == ""


def test_no_run_is_made_for_another_look_at_the_times_alone(tmp_path: Path) -> None:
    session = planning(tmp_path, ("timing_second",))
    ended = ChildReport(script_ended=True, steps=40)
    assert session._why_again(ended, EVERY) == ""
    assert session._why_again(ChildReport(deferred=["timing_second"]), EVERY) == ""


def test_what_is_still_to_do_names_no_look(tmp_path: Path) -> None:
    session = planning(tmp_path, ("inspect", "replay", "verify", "timing_second"))
    died = ChildReport(current_pass="inspect", exit_code=-11)
    why = session._why_again(died, EVERY)
    assert "inspect, replay, verify" in why
    assert "timing" not in why


def test_a_run_is_not_said_to_be_made_for_a_look(tmp_path: Path) -> None:
    session = planning(tmp_path, ("replay", "timing_second"))
    report = ChildReport(deferred=["timing_second", "replay"])
    assert session._why_again(report, EVERY) == "replay needs a process of its own"


def test_a_script_that_ends_in_the_second_look_was_measured(tmp_path: Path) -> None:
    report = ChildReport(exit_code=7, on_gpu=True)
    for line in ({"kind": "enough"}, {"kind": "pass_start", "name": "timing_second", "total": 15}):
        report.hear(line)
    report.hear(
        {
            "kind": "script_ended",
            "steps": 100,
            "searching": False,
            "forwards": 0,
            "optimizer_steps": 0,
        }
    )
    assert not report.failed
    assert report.remarks() == []
    assert judge(report, {"timing": {}}, structure=True) is None


@pytest.mark.parametrize(
    ("lacks", "captures"),
    [(tuple(EVERY), False), (("replay", "replay_trace", "verify", "timing_second"), True)],
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


def test_results_of_another_step_are_not_put_beside_each_other(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    for number, period in enumerate((["backward", "optimizer"], ["forward", "backward"])):
        run = ResultFolder(tmp_path / str(number))
        run.path.mkdir()
        run.write("step", {"period": period})
        run.write(f"pass-{('timing', 'trace')[number]}", {"steps": 3})
        collected.take(ChildReport(folder=run.path))
    assert collected.step == {"period": ["backward", "optimizer"]}
    assert collected.results == {"timing": {"steps": 3}}
    assert "(forward > backward) than" in collected.failures["trace"]["reason"]


def test_the_step_of_a_run_that_measured_nothing_is_forgotten(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    for number, period in enumerate((["forward"], ["optimizer"])):
        run = ResultFolder(tmp_path / str(number))
        run.path.mkdir()
        run.write("step", {"period": period})
        collected.take(ChildReport(folder=run.path))
    assert collected.step == {"period": ["optimizer"]}


def test_a_script_that_leaves_without_ending_python_is_told_so(tmp_path: Path) -> None:
    problem = judge(ChildReport(exit_code=0, saw_torch=True), {}, structure=False)
    assert "ended its process from inside" in str(problem)
