"""What one child's run came to, read from its status lines, its exit code and its end."""

from __future__ import annotations

import errno
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchscope.errors import (
    LaunchscopeError,
    MeasureError,
    NoStepError,
    PassTimeoutError,
    ScriptError,
)

_FEW_MISSED = 2
_OTHER_THREADS = "the script runs its model in several threads, and one alone is followed"
_OTHER_MODEL = (
    "it went on to train another model than the one whose step had been found, as with a new one "
    "for each trial or fold"
)


@dataclass
class ChildReport:
    """Filled in while the child runs."""

    folder: Path = Path()
    exit_code: int | None = None
    started: bool = False
    current_pass: str | None = None
    pass_deadline: float | None = None
    deferred: list[str] = field(default_factory=list)
    done: bool = False
    enough: bool = False  # nothing is left to do that is worth another run
    ended: bool = False
    script_ended: bool = False
    searching: bool = False
    steps: int = 0
    forwards: int = 0
    optimizer_steps: int = 0
    rehearsal: bool = False
    on_gpu: bool | None = None
    saw_torch: bool = False
    error: str | None = None
    error_text: str = ""
    exits: bool = False
    processes: int = 0
    elsewhere: int = 0  # forwards seen in threads that are not followed
    missed: int = 0  # steps of training that were not those that had been found
    signal: int | None = None  # the one that asked us to end
    timed_out: bool = False
    killed: bool = False
    hung_in: str | None = None
    unwritable: OSError | None = None  # why not all of what it found is on disk
    told: list[str] = field(default_factory=list)  # notes of the child itself

    def hear(self, line: dict[str, Any]) -> None:
        """Take in one status line."""
        kind = line["kind"]
        if kind == "child_started":
            self.started = True
        elif kind == "pass_start":
            self.saw_torch = True
            self.current_pass = line["name"]
            limit = line.get("limit_s")
            self.pass_deadline = None if limit is None else time.monotonic() + limit
        elif kind == "pass_end":
            self.current_pass, self.pass_deadline = None, None
        elif kind == "deferred":
            self.deferred = line["names"]
        elif kind == "enough":
            self.enough = True
        elif kind == "done":
            self.done = True
            self.current_pass, self.pass_deadline = None, None
        elif kind == "rehearsal":
            self.rehearsal = True
        elif kind == "mode":
            self.on_gpu = line["on_gpu"]
        elif kind == "script_ended":
            self.script_ended = True
            self.searching = line["searching"]
            self.steps = line["steps"]
            self.forwards = line["forwards"]
            self.optimizer_steps = line["optimizer_steps"]
            self.processes = line.get("processes", 0)
            self.missed = line.get("missed", 0)
            self.elsewhere = line.get("elsewhere", 0)
        elif kind == "script_failed":
            self.error, self.error_text = line["error"], line["text"]
            self.exits = line["exits"]
        elif kind == "note":
            self.told.append(line["text"])
        elif kind == "child_ended":
            self.ended = True

    @property
    def interrupted(self) -> bool:
        """The run was ended from outside, by Ctrl-C or another signal."""
        return self.signal is not None

    @property
    def failed(self) -> bool:
        """The script itself ended badly before everything was measured."""
        return not (self.done or self.enough) and self.exit_code not in (0, None)

    @property
    def crashed_in(self) -> str | None:
        """The pass during which the process died without a word; None if it did not."""
        if self.ended or self.done or self.killed or self.interrupted or self.error:
            return None
        if self.unwritable is not None:  # it may have told us, and we did not hear
            return None
        return None if self.current_pass == "warmup" else self.current_pass

    def broken_pass(self) -> tuple[str, str] | None:
        """The pass that was cut off and why; None if none was."""
        if self.hung_in is not None:
            return self.hung_in, "it did not come to an end and was stopped"
        if self.timed_out and self.current_pass is not None:
            return self.current_pass, "the time limit was reached"
        if self.crashed_in is not None:
            return self.crashed_in, f"the process was ended by {death_of(self.exit_code)}"
        return None

    def remarks(self) -> list[str]:
        found = list(self.told)
        if self.script_ended and not (self.failed or self.searching or self.enough):
            text = f"the script ended after {self.steps} steps, before the last pass"
            if self.several_threads:
                text = f"{text}; {_OTHER_THREADS}"
            elif self.other_model:
                text = f"{text}; {_OTHER_MODEL}"
            found.append(text)
        if self.unwritable is not None and not self.done:
            found.append(
                f"not everything is here: results could not be written ({_why(self.unwritable)})"
            )
        if self.processes:
            found.append(f"{self.started_others}; what runs in such was not measured")
        return found

    @property
    def other_model(self) -> bool:
        """Whether training went on with what is not the model of the step that was found."""
        return self.missed > _FEW_MISSED

    @property
    def several_threads(self) -> bool:
        """Whether much of the work was seen in threads that are not followed."""
        return 2 * self.elsewhere > max(self.steps, self.forwards)

    @property
    def started_others(self) -> str:
        many = "es" if self.processes > 1 else ""
        return f"the script started {self.processes} process{many} of its own"


def death_of(exit_code: int | None) -> str:
    """Words for an exit code as subprocess gives it (negative: a signal)."""
    if exit_code is None:
        return "an unknown cause"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def judge(
    report: ChildReport, results: dict[str, Any], structure: bool, step_from: str = "auto"
) -> LaunchscopeError | None:
    """The problem of the last run as an error to report; None if it went as it should.

    The script's own failure only counts while there is no verdict to give: a run that was
    measured to its end, and a capture that failed, are results.
    """
    measured = "timing" in results or structure
    if report.interrupted:
        return None
    if report.timed_out:
        if measured:
            return None
        where = "in the warm-up" if report.current_pass == "warmup" else "while the script ran"
        return PassTimeoutError(
            f"the time limit was reached {where}, before any step was timed",
            hint="raise --timeout, or let the script reach its training loop sooner",
        )
    if report.done or report.enough or (measured and report.broken_pass() is not None):
        return None
    code = report.exit_code or 0
    lost = (
        None if report.unwritable is None else unwritable(report.folder.parent, report.unwritable)
    )
    if lost is not None and code == 0:
        return lost
    if code != 0:
        shell_code = 128 - code if code < 0 else code
        how = f"was ended by {death_of(code)}" if code < 0 else f"ended with exit code {code}"
        what = f" ({report.error})" if report.error and not report.exits else ""
        return ScriptError(
            f"the script {how}{what} before it was measured"
            if not measured
            else f"the script {how}{what} before every pass was done",
            exit_code=shell_code,
            hint="run it without launchscope first; the same failure should appear"
            if lost is None
            else f"{lost}; {lost.hint}",
        )
    if measured:
        return None
    return _nothing_measured(report, step_from)


def unwritable(directory: Path, error: OSError) -> MeasureError:
    """What to say where results could not be written to `directory`, or below it."""
    if error.errno == errno.ENOENT:
        hint = "set TMPDIR to a folder that nothing empties meanwhile"
    elif directory.is_relative_to(tempfile.gettempdir()):
        hint = "make room there, or set TMPDIR to a folder with room"
    else:
        hint = "make room there"
    return MeasureError(
        f"what was measured could not be written to {directory}: {_why(error)}", hint=hint
    )


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _nothing_measured(report: ChildReport, step_from: str) -> MeasureError:
    if not report.ended:
        return NoStepError(
            "the script ended its process from inside (os._exit, os.exec or a library's), before "
            "enough steps were seen",
            hint="let it run longer, or profile the program that it turns into",
        )
    if not report.saw_torch:
        return NoStepError(
            "the script ended without importing torch",
            hint="point launchscope at the script that trains or runs the model",
        )
    if report.processes:
        return NoStepError(
            f"no step was seen: {report.started_others}, and the work seems to run there",
            hint="profile the worker itself, or run the script so that it trains in one process",
        )
    if step_from == "marker" and report.steps == 0:
        return NoStepError(
            "no step was marked: the script never entered launchscope.step()",
            hint="put the step in `with launchscope.step():`, or leave --step-from marker out",
        )
    if report.forwards == 0 and report.steps == 0:
        return NoStepError(
            "the script ended without a single forward of a torch.nn.Module or optimizer step",
            hint="mark the step in the script: with launchscope.step(): ...",
        )
    if report.steps > 0:
        if report.several_threads:
            return NoStepError(
                f"only {report.steps} steps were seen in the thread that is followed, too few to "
                f"warm up and time some: {_OTHER_THREADS}",
                hint="let it run longer, or use one thread for the profile",
            )
        if report.other_model:
            return NoStepError(
                f"only {report.steps} steps were seen, too few to warm up and time some: "
                f"{_OTHER_MODEL}",
                hint="mark the step with launchscope.step(), or let the first model train longer",
            )
        if report.on_gpu is False:
            return NoStepError(
                f"the script ended after {report.steps} steps, too few to find the step and "
                "inspect some",
                hint="let it make a few steps more",
            )
        return NoStepError(
            f"the script ended after {report.steps} steps, too few to warm up and time some",
            hint="let it run longer, or take fewer: --warmup 2 --timing 5",
        )
    return NoStepError(
        f"no repeating step was found ({report.forwards} forwards seen)",
        hint="let the script run longer, mark its step with launchscope.step(), or try --step-from",
    )
