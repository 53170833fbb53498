"""The profile command around a runner that is played by a fake."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import launchscope.parser
from launchscope.cli import main
from launchscope.errors import InputError, LaunchscopeError, NoStepError, ScriptError
from launchscope.model import (
    Environment,
    PassFailure,
    Reason,
    Recording,
    Schedule,
    Target,
    TimingResult,
)
from launchscope.parser import read_profile
from launchscope.runner.parent import child_watch as watch
from launchscope.runner.parent import session
from launchscope.workflows import load_input
from tests.rules.profiles import profile

ERROR = {"kind": "OutOfMemoryError", "error": "2 GiB"}
TIMING = TimingResult(0, (0, 1), (1, 2), 3, (), ())


@dataclass
class Runner:
    """Plays runner.session and the analysis behind it; keeps what it was asked."""

    problem: LaunchscopeError | None = None
    interrupted: bool = False
    measured: bool = True
    events: tuple[watch.ProgressEvent, ...] = ()
    during: Callable[[], None] = lambda: None
    asked: dict[str, Any] = field(default_factory=dict)

    def record(
        self,
        target: Target,
        schedule: Schedule,
        options: session.RunOptions,
        directory: Path,
        listen: Callable[[watch.ProgressEvent], None],
    ) -> session.Outcome:
        self.asked |= {
            "target": target,
            "schedule": schedule,
            "options": options,
            "directory": directory,
        }
        for event in self.events:
            listen(event)
        self.during()
        code = 130 if self.interrupted else self.problem.exit_code if self.problem else 0
        return session.Outcome(directory, self.problem, self.interrupted, code)

    def read(self, path: Path) -> Recording:
        target = self.asked["target"]
        timing = TIMING if self.measured else None
        return Recording(target, Environment(), "gpu", Schedule(), str(path), timing=timing)

    def build(self, recording: Recording, **settings: Any) -> Any:
        self.asked |= settings
        return replace(profile(), target=recording.target, expected_steps=None)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    given = Runner()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    monkeypatch.setattr(session, "record", given.record)
    monkeypatch.setattr(launchscope.parser, "read_recording", given.read)
    monkeypatch.setattr(load_input, "build_profile", given.build)
    return given


Streams = pytest.CaptureFixture[str]


def test_the_report_goes_to_stdout_and_the_rest_to_stderr(runner: Runner, capsys: Streams) -> None:
    runner.events = (
        watch.ProgressEvent("run", "train.py", text="running train.py"),
        watch.ProgressEvent("pass", "timing", "timing", total=30),
        watch.ProgressEvent("pass_end", "timing", "timing", text="0.4 s"),
    )
    assert main(["profile", "train.py"]) == 0
    out, err = capsys.readouterr()
    assert "ADOPT" in out.splitlines()[1]
    assert err == "launchscope: running train.py\nlaunchscope: timing, 0.4 s\n"


def test_options_end_at_the_script(runner: Runner) -> None:
    assert main(["profile", "-q", "train.py", "--lr", "0.1", "-q", "--", "-x"]) == 0
    assert runner.asked["target"] == Target("script", "train.py", ("--lr", "0.1", "-q", "--", "-x"))


def test_a_module_is_run_with_m(runner: Runner) -> None:
    assert main(["profile", "-q", "-m", "pkg.train", "--epochs", "1"]) == 0
    assert runner.asked["target"] == Target("module", "pkg.train", ("--epochs", "1"))


def test_options_reach_the_runner_and_the_analysis(runner: Runner) -> None:
    given = "--warmup 3 --timing 7 --trace 0 --replay 0 --step-from marker --full --timeout 90"
    given += " --max-runs 2 --threshold 20% --expected-steps 500"
    assert main(["profile", "-q", *given.split(), "train.py"]) == 0
    schedule, options = runner.asked["schedule"], runner.asked["options"]
    assert (schedule.warmup, schedule.timing, schedule.trace, schedule.replay) == (3, 7, 0, 0)
    assert (schedule.step_from, schedule.full, schedule.inspect) == ("marker", True, 3)
    assert (options.timeout_s, options.max_runs, options.process.python) == (90.0, 2, None)
    assert (runner.asked["threshold_pct"], runner.asked["expected_steps"]) == (20.0, 500)


def test_the_recording_is_removed_unless_it_is_to_be_kept(
    runner: Runner, tmp_path: Path, capsys: Streams
) -> None:
    assert main(["profile", "train.py"]) == 0
    assert not runner.asked["directory"].exists()
    assert main(["profile", "--keep-trace", "train.py"]) == 0
    assert runner.asked["directory"] == tmp_path / "train.launchscope"
    assert main(["profile", "--keep-trace", "train.py"]) == 0
    assert (tmp_path / "train-2.launchscope").is_dir()
    assert "train-2.launchscope" in capsys.readouterr().err
    (tmp_path / "train-3.launchscope").symlink_to("nothing")
    assert main(["profile", "--keep-trace", "train.py"]) == 0
    assert (tmp_path / "train-4.launchscope").is_dir()


def test_a_format_that_shows_a_trace_is_refused_before_the_run(
    runner: Runner, tmp_path: Path, capsys: Streams
) -> None:
    assert main(["profile", "-o", "a.perfetto.json", "train.py"]) == 2
    assert runner.asked == {}
    assert "launchscope profile --keep-trace keeps it" in capsys.readouterr().err


def test_files_are_written_in_the_format_of_their_suffix(runner: Runner, tmp_path: Path) -> None:
    assert main(["profile", "-q", "-o", "p.json", "-o", "p.md", "train.py"]) == 0
    assert read_profile(tmp_path / "p.json").verdict is not None
    assert (tmp_path / "p.md").read_text().startswith("# ADOPT: `train.py`")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json", "p.md", "train.py"]


def test_the_script_prints_beside_a_format_for_programs(runner: Runner) -> None:
    main(["profile", "-q", "-f", "json", "train.py"])
    assert runner.asked["options"].process.stdout == 2
    main(["profile", "-q", "train.py"])
    assert runner.asked["options"].process.stdout is None


def test_a_report_off_a_terminal_begins_a_line(runner: Runner, capsys: Streams) -> None:
    runner.during = lambda: print("abc", end="")
    assert main(["profile", "-q", "train.py"]) == 0
    assert capsys.readouterr().out.startswith("abc\n╭─  ADOPT")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            {"failures": (PassFailure("inspect", Reason("out_of_memory", ERROR)),)},
            ": the inspect pass gave no result: OutOfMemoryError: 2 GiB\n",
        ),
        (
            {"mode": "rehearsal", "schedule": Schedule(inspect=0)},
            "error: nothing was measured\nhint: leave out --inspect 0",
        ),
    ],
)
def test_a_run_without_results_says_why_even_when_quiet(
    found: dict[str, Any],
    said: str,
    runner: Runner,
    capsys: Streams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner.measured = False
    read = runner.read
    monkeypatch.setattr(
        launchscope.parser, "read_recording", lambda path: dataclasses.replace(read(path), **found)
    )
    assert main(["profile", "-q", "train.py"]) == 3
    assert said in capsys.readouterr().err


def test_the_next_command_shows_the_run_again_and_measures_nothing(
    runner: Runner, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["profile", "-q", "train.py"])
    assert "launchscope report -o report.html" in capsys.readouterr().out
    main(["profile", "-o", "mine.json", "train.py"])
    assert "launchscope report mine.json" in capsys.readouterr().out
    monkeypatch.setenv("LAUNCHSCOPE_NO_CACHE", "1")
    main(["profile", "-q", "train.py"])
    assert "launchscope report -o" not in capsys.readouterr().out


def test_a_note_points_out_an_option_after_the_script(runner: Runner, capsys: Streams) -> None:
    assert main(["profile", "train.py", "--timing", "5"]) == 0
    assert (
        "note: --timing comes after train.py, so it goes to the script" in capsys.readouterr().err
    )
    assert main(["profile", "train.py", "-o", "p.json"]) == 0
    assert "note: -o comes after train.py" in capsys.readouterr().err
    assert main(["profile", "train.py", "-o", "checkpoints", "--lr", "1"]) == 0
    assert "note:" not in capsys.readouterr().err


def test_a_problem_after_the_measurement_follows_the_report(
    runner: Runner, capsys: Streams
) -> None:
    runner.problem = ScriptError("the script ended with exit code 7", exit_code=7)
    assert main(["profile", "train.py"]) == 7
    out, err = capsys.readouterr()
    assert "ADOPT" in out
    assert err.endswith("error: the script ended with exit code 7\n")


def test_a_problem_before_the_measurement_is_the_only_output(
    runner: Runner, capsys: Streams
) -> None:
    runner.problem, runner.measured = NoStepError("no step was found", hint="mark it"), False
    assert main(["profile", "train.py"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: no step was found\nhint: mark it\n"


def test_an_unreadable_recording_never_hides_the_problem(
    runner: Runner, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> Recording:
        raise InputError(f"{path} is damaged")

    monkeypatch.setattr(launchscope.parser, "read_recording", fails)
    runner.problem = ScriptError("the script died by signal 11", exit_code=139)
    assert main(["profile", "train.py"]) == 139
    assert "signal 11" in capsys.readouterr().err


def test_an_internal_error_asks_for_a_report(runner: Runner, capsys: Streams) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    runner.during = fail
    assert main(["profile", "train.py"]) == 3
    err = capsys.readouterr().err
    assert "error: launchscope failed: ZeroDivisionError: division by zero" in err
    assert "report it, with the output" in err
    assert "Traceback" not in err
    assert main(["profile", "-v", "train.py"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_report_is_shown_although_its_file_cannot_be_written(
    runner: Runner, tmp_path: Path, capsys: Streams
) -> None:
    (tmp_path / "out").mkdir()
    runner.during = (tmp_path / "out").rmdir
    assert main(["profile", "-o", "out/p.json", "train.py"]) == 2
    out, err = capsys.readouterr()
    assert "ADOPT" in out
    assert "error: cannot write out/p.json" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile"], "no script was given"),
        (["profile", "trian.py"], "trian.py: no such file\nhint: did you mean train.py?"),
        (["profile", "."], ". is a directory"),
        (["profile", "pkg.train"], "to run a module, type launchscope profile -m pkg.train"),
        (["profile", "-o", "p.pdf", "train.py"], "no output format for suffix '.pdf'"),
        (["profile", "-o", "none/p.json", "train.py"], "none is not a directory"),
        (["profile", "--timing", "-3", "train.py"], "--timing: expected a whole number"),
        (["profile", "--step-from", "none", "train.py"], "is for reading traces"),
        (["profile", "--treshold", "3", "train.py"], "--treshold"),
        (
            ["profile", "--python", "no-python", "train.py"],
            "no-python is not an executable program",
        ),
        (["profle", "train.py"], "profle"),
    ],
)
def test_a_mistyped_command_is_exit_code_2_before_anything_runs(
    runner: Runner, capsys: Streams, arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert runner.asked == {}
