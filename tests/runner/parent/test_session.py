"""Which runs of the script a session plans: what is worth one, and what each may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import (
    LoopResult,
    Reason,
    Schedule,
    StepBoundary,
    StepEvent,
    Target,
    TimingResult,
    TraceResult,
)
from launchscope.runner.parent.child_report import ChildReport, failure_after, problem_of
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.session import RunOptions, _Session
from launchscope.runner.protocol.events import (
    MeasuringEnded,
    PassFailed,
    PassStarted,
    ScriptEnded,
)
from launchscope.runner.protocol.folder import PLAN_FILE, ChildFolder
from launchscope.runner.protocol.passes import PASSES, PassInfo
from tests.runner.children import SMALL_STEP, recorded

EVERY = {kind.name: kind for kind in PASSES.values() if kind.steps(Schedule()) > 0}


def passes(*names: str) -> list[PassInfo]:
    return [EVERY[name] for name in names]


def planning(folder: Path, lacks: tuple[str, ...], schedule: Schedule | None = None) -> _Session:
    """A session that has the results of all passes but these."""
    target = Target("script", "train.py")
    session = _Session(target, schedule or Schedule(), RunOptions(), folder, lambda event: None)
    session.collected.on_gpu = True
    session.collected.results = {name: None for name in EVERY if name not in lacks}
    return session


def test_a_pass_that_breaks_leaves_the_others_to_another_run(tmp_path: Path) -> None:
    session = planning(tmp_path, ("trace", "inspect"))
    report = ChildReport(tmp_path, exit_code=0)
    for event in (PassStarted("trace", 6), PassFailed("trace", Reason("error")), MeasuringEnded()):
        report.on_event(event)
    session.collected.take(report)
    details = {"name": "trace", "names": "inspect"}
    assert session._why_again(report) == Reason("pass_ended_process", details)
    assert session._open_passes() == passes("inspect")


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (ChildReport(exit_code=7, done=True), 7),
        (ChildReport(exit_code=-9, done=True), 137),
        (ChildReport(exit_code=0, done=True), None),
        (ChildReport(exit_code=-15, done=True, signal=15), None),
        (ChildReport(exit_code=-15, done=True, timed_out=True, killed=True), None),
        (ChildReport(exit_code=-11, enough=True, current_pass="replayed_loop"), None),
    ],
)
def test_a_script_fails_after_it_was_measured_unless_launchscope_ends_it(
    report: ChildReport, code: int | None
) -> None:
    failed = failure_after(report)
    assert (None if failed is None else failed.exit_code) == code


@pytest.mark.child
def test_with_full_the_last_run_measures_nothing_and_does_not_count(tmp_path: Path) -> None:
    source = SMALL_STEP + "for _ in range(60): step()\nopen(sys.argv[1], 'a').write('ended ')\n"
    appended, options = tmp_path / "appended.txt", RunOptions(max_runs=1)
    schedule = Schedule(full=True)
    ran = recorded(tmp_path, source, str(appended), schedule=schedule, options=options)
    assert ran.recording.inspect is not None
    assert appended.read_text() == "ended "
    assert ran.recording.runs == 2
    assert not list(tmp_path.rglob(PLAN_FILE))  # it may hold secrets


def boundary(*period: StepEvent) -> StepBoundary:
    return StepBoundary("period", period, period, "full_step")


def test_results_of_different_steps_are_not_mixed(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    periods = boundary("backward", "optimizer"), boundary("forward", "backward")
    results = {
        "timing": TimingResult(0, (), (), 0, (), ()),
        "trace": TraceResult("trace.json", 5, 1, True),
    }
    for period, (name, result) in zip(periods, results.items(), strict=True):
        folder = ChildFolder(tmp_path / name)
        folder.path.mkdir()
        folder.write("step", period)
        folder.write(f"pass-{name}", result)
        collected.take(ChildReport(folder=folder.path))
    assert collected.step == boundary("backward", "optimizer")
    assert list(collected.results) == ["timing"]
    assert collected.failures["trace"].details["now"] == "forward > backward"


def test_a_failed_pass_is_the_reason_why_nothing_was_measured() -> None:
    report = ChildReport(exit_code=0, ended=True, saw_torch=True, on_gpu=False)
    for event in (PassFailed("inspect", Reason("hung")), ScriptEnded(steps=40)):
        report.on_event(event)
    problem = problem_of(report, measured=False)
    assert problem is not None
    assert str(problem).startswith("nothing was measured: the pass 'inspect' failed: ")


@pytest.mark.child
@pytest.mark.parametrize("taken_back", [0, 16])
def test_a_report_says_what_a_script_that_ended_while_measured_may_have_saved(
    taken_back: int, tmp_path: Path
) -> None:
    session = planning(tmp_path, ())
    loop = LoopResult("failed", Reason("script_ended"), taken_back=taken_back)
    session.collected.results["replayed_loop"] = loop
    session._conclude(ChildReport(script=ScriptEnded(steps=120), exit_code=0))
    notes = " ".join(session.collected.notes)
    assert "reached its own end while it was measured" in notes
    assert ("lacks 16 steps that were replayed and taken back" in notes) is bool(taken_back)
