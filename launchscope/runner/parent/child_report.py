"""What one child's run came to: its events, its exit code, and how it ended."""

from __future__ import annotations

import errno
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from launchscope.errors import (
    LaunchscopeError,
    MeasureError,
    NoStepError,
    PassTimeoutError,
    ScriptError,
)
from launchscope.model import Reason
from launchscope.reason_text import cause_of_death
from launchscope.runner.protocol.events import (
    WARMUP,
    ChildEnded,
    Deferred,
    DeviceKnown,
    EnoughMeasured,
    Event,
    MeasuringEnded,
    Note,
    PassEnded,
    PassFailed,
    PassSkipped,
    PassStarted,
    RehearsalStarted,
    ScriptEnded,
    ScriptFailed,
)

_FEW_MISSED_STEPS = 2
_OTHER_THREADS = "the script runs its model in several threads, and launchscope follows only one"
_OTHER_MODEL = (
    "after that the script trained another model than the one whose step was found, as scripts "
    "do that make a new model for each trial or fold"
)


@dataclass
class ChildReport:
    """Filled in while the child runs."""

    folder: Path = Path()
    exit_code: int | None = None
    rehearsal: bool = False
    on_gpu: bool | None = None
    saw_torch: bool = False
    current_pass: str | None = None
    pass_deadline: float | None = None
    deferred: tuple[str, ...] = ()
    skipped: set[str] = field(default_factory=set)
    failures: dict[str, Reason] = field(default_factory=dict)  # by pass
    notes: list[str] = field(default_factory=list)
    enough: bool = False  # no pass is left for which the script would be run again
    done: bool = False  # the last pass is over
    ended: bool = False
    script: ScriptEnded | None = None  # set if the script ended before the last pass did
    script_error: ScriptFailed | None = None
    signal: int | None = None  # the signal that asked us to end
    timed_out: bool = False
    killed: bool = False
    hung_in: str | None = None
    write_error: OSError | None = None  # why not everything the child found is on disk

    def on_event(self, event: Event) -> None:
        """Take in one event of the child."""
        match event:
            case RehearsalStarted():
                self.rehearsal = True
            case DeviceKnown():
                self.on_gpu = event.on_gpu
            case Deferred():
                self.deferred = event.names
            case PassStarted():
                self.saw_torch = True
                self.current_pass = event.name
                limit = event.limit_s
                self.pass_deadline = None if limit is None else time.monotonic() + limit
            case PassSkipped():
                self.skipped.add(event.name)
            case PassFailed():
                self.failures[event.name] = event.reason
                self._pass_over()
            case PassEnded():
                self._pass_over()
            case EnoughMeasured():
                self.enough = True
            case MeasuringEnded():
                self.done = True
                self._pass_over()
            case ScriptEnded():
                self.script = event
            case ScriptFailed():
                self.script_error = event
            case Note():
                self.notes.append(event.text)
            case ChildEnded():
                self.ended = True

    def _pass_over(self) -> None:
        self.current_pass, self.pass_deadline = None, None

    @property
    def seen(self) -> ScriptEnded:
        """What was seen of the script; all zero unless it ended before the last pass did."""
        return self.script or ScriptEnded()

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
        """The pass during which the process died without an event; None if it did not."""
        if self.ended or self.done or self.killed or self.interrupted or self.script_error:
            return None
        if self.write_error is not None:  # the event may be what could not be written
            return None
        return None if self.current_pass == WARMUP else self.current_pass

    def broken_pass(self) -> tuple[str, Reason] | None:
        """The pass that was cut off and why; None if none was."""
        if self.hung_in is not None:
            return self.hung_in, Reason("hung")
        if self.timed_out and self.current_pass is not None:
            return self.current_pass, Reason("time_limit")
        if self.crashed_in is not None:
            code = {} if self.exit_code is None else {"exit_code": self.exit_code}
            return self.crashed_in, Reason("process_died", code)
        return None

    def remarks(self) -> list[str]:
        """What a reader of the recording has to know about this run."""
        found = list(self.notes)
        if self.script and not (self.failed or self.script.searching or self.enough):
            text = (
                f"the script ended after {_count(self.script.steps, 'step')}, before the last pass"
            )
            if self.several_threads:
                text = f"{text}; {_OTHER_THREADS}"
            elif self.other_model:
                text = f"{text}; {_OTHER_MODEL}"
            found.append(text)
        if self.write_error is not None and not self.done:
            found.append(
                f"results are missing because they could not be written ({_why(self.write_error)})"
            )
        if self.seen.processes:
            found.append(f"{self.started_processes}; launchscope does not measure what runs there")
        return found

    @property
    def other_model(self) -> bool:
        """Whether training went on with another model than the one whose step was found."""
        return self.seen.missed_steps > _FEW_MISSED_STEPS

    @property
    def several_threads(self) -> bool:
        """Whether much of the work was seen in threads that are not followed."""
        return 2 * self.seen.other_thread_forwards > max(self.seen.steps, self.seen.forwards)

    @property
    def started_processes(self) -> str:
        return f"the script started {_count(self.seen.processes, 'process', 'es')} of its own"


def problem_of(
    report: ChildReport, *, measured: bool, step_from: str = "auto"
) -> LaunchscopeError | None:
    """The problem of the last run as an error to report; None if it went as it should.

    The script's own failure only counts while there is no verdict to give: a run that was
    measured to its end, and a capture that failed, are results.
    """
    if report.interrupted:
        return None
    if report.timed_out:
        if measured:
            return None
        when = "during the warm-up" if report.current_pass == WARMUP else "while the script ran"
        return PassTimeoutError(
            f"the time limit was reached {when}, before any step was timed",
            hint="raise --timeout, or let the script reach its training loop sooner",
        )
    if report.done or report.enough or (measured and report.broken_pass() is not None):
        return None
    lost = (
        None
        if report.write_error is None
        else cannot_write(report.folder.parent, report.write_error)
    )
    if report.exit_code:
        return _script_error(report, report.exit_code, measured, lost)
    if lost is not None or measured:
        return lost
    return _nothing_measured(report, step_from)


def _script_error(
    report: ChildReport, code: int, measured: bool, lost: LaunchscopeError | None
) -> ScriptError:
    raised = report.script_error
    how = f"was ended by {cause_of_death(code)}" if code < 0 else f"ended with exit code {code}"
    exception = raised.error if raised is not None and not raised.exits else None
    what = f" ({exception})" if exception else ""
    when = "before every pass was done" if measured else "before it was measured"
    return ScriptError(
        f"the script {how}{what} {when}",
        exit_code=128 - code if code < 0 else code,
        exception=exception,
        hint="run it without launchscope first; the same failure should appear"
        if lost is None
        else f"{lost}; {lost.hint}",
    )


def cannot_write(directory: Path, error: OSError) -> MeasureError:
    """The error for results that could not be written to `directory`, or below it."""
    if error.errno == errno.ENOENT:
        hint = "set TMPDIR to a folder that nothing empties during the run"
    elif directory.is_relative_to(tempfile.gettempdir()):
        hint = "free some space there, or set TMPDIR to a folder that has some"
    else:
        hint = "free some space there"
    return MeasureError(
        f"the results could not be written to {directory}: {_why(error)}", hint=hint
    )


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _nothing_measured(report: ChildReport, step_from: str) -> NoStepError:
    seen = report.seen
    if not report.ended:
        return NoStepError(
            "the script ended its process from inside (with os._exit, os.exec or a library that "
            "calls them) before launchscope had seen enough steps",
            hint="let it run longer, or profile the program that it turns into",
        )
    if not report.saw_torch:
        return NoStepError(
            "the script ended without importing torch",
            hint="name the script that trains or runs the model",
        )
    if seen.processes:
        return NoStepError(
            f"no step was found: {report.started_processes}, and the work seems to run there",
            hint="profile the worker itself, or run the script so that it trains in one process",
        )
    if step_from == "marker" and seen.steps == 0:
        return NoStepError(
            "no step was marked: the script never entered launchscope.step()",
            hint="put the step in `with launchscope.step():`, or leave out --step-from marker",
        )
    if seen.forwards == 0 and seen.steps == 0:
        return NoStepError(
            "the script ended without a forward of a torch.nn.Module and without an optimizer step",
            hint="mark the step in the script: with launchscope.step(): ...",
        )
    if seen.steps == 0:
        return NoStepError(
            f"no repeating step was found in {_count(seen.forwards, 'forward')}",
            hint="let the script run longer, mark its step with launchscope.step(), or try "
            "--step-from",
        )
    steps = _count(seen.steps, "step")
    if report.several_threads:
        return NoStepError(
            f"the thread that launchscope follows made only {steps}, too few to warm up and time "
            f"some: {_OTHER_THREADS}",
            hint="let it run longer, or use one thread for the profile",
        )
    if report.other_model:
        return NoStepError(
            f"the script made only {steps}, too few to warm up and time some: {_OTHER_MODEL}",
            hint="mark the step with launchscope.step(), or let the first model train longer",
        )
    if report.on_gpu is False:
        return NoStepError(
            f"the script ended after {steps}, too few to find the step and inspect some",
            hint="let it run for a few more steps",
        )
    return NoStepError(
        f"the script ended after {steps}, too few to warm up and time some",
        hint="let it run longer, or take fewer steps: --warmup 2 --timing 5",
    )


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"
