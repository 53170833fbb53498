"""What one child's run came to: its events, its exit code, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from launchscope.errors import LaunchscopeError, MeasureError, NoStepError, ScriptError
from launchscope.model import Reason, Schedule
from launchscope.reason_text import cause_of_death, reason_text
from launchscope.runner.protocol import events
from launchscope.wording import place, plural

_USUAL = Schedule()
_BUG = "this is a bug in launchscope: please report it, with the output of the same command with -v"
# What a reader has to know about the step that was found, and the script.
REMARKS: dict[events.RemarkCode, str] = {
    "uneven": "the training steps do not repeat one sequence of events, so a step is everything "
    "between two optimizer steps, and the verdict is about those that begin and end as most of "
    "them do",
    "no_backward": "the forwards run with gradients enabled, but no backward() was seen: put "
    "inference under torch.inference_mode(), and mark a step that trains through "
    "torch.autograd.grad with `with launchscope.step():`",
    "no_forward": "launchscope sees the step only from its backward on, because the forward calls "
    "no torch.nn.Module that has parameters; to capture all of it, mark the step with "
    "launchscope.step()",
    "no_beginning": "no call of a torch.nn.Module or of zero_grad() marks where the step begins, "
    "so it begins where the step before ends, and what runs between steps is part of it; to "
    "measure less, mark the step with `with launchscope.step():`",
    "captured": "the step is the first block that the script captures; it runs once, so what "
    "would have to change from replay to replay was not looked for",
    "forward_alone": "the step is the forward alone, as you asked: the backward and the optimizer "
    "are not part of it, and you cannot train through a graph of it",
    "unfollowed": "the script creates new modules in every step, so launchscope cannot see where "
    "the step begins; mark it with `with launchscope.step():`",
    "unusable": "the capture failed, and CUDA does not work in this process anymore: start another "
    "one, and call measure() with replay=False",
    "ddp": "a capture of DistributedDataParallel ({where}) needs TORCH_NCCL_ASYNC_ERROR_HANDLING=0 "
    "before init_process_group, the model wrapped under torch.cuda.stream() of a side stream, "
    "find_unused_parameters=False, and at least 11 steps on that stream first",
    "graphed_callables": "torch.cuda.make_graphed_callables at {where} graphs a part of the step: "
    "this run inspected that part, forward and backward, and not the rest, which stays eager in "
    "your script; under torch.autocast, both need cache_enabled=False",
}


def remark(event: events.Remark) -> str:
    return REMARKS[event.code].format(where=place(event.where))


@dataclass
class ChildReport:
    """Filled in while the child runs."""

    folder: Path = Path()
    exit_code: int | None = None
    on_gpu: bool | None = None
    saw_torch: bool = False
    current_pass: str | None = None
    pass_deadline: float | None = None
    skipped: set[str] = field(default_factory=set)
    failures: dict[str, Reason] = field(default_factory=dict)  # by pass
    loaded: events.FilesLoaded | None = None
    notes: list[str] = field(default_factory=list)
    enough: bool = False  # no pass is left for which the script would be run again
    to_its_end: bool = False  # nothing is measured, and nobody stops the script
    done: bool = False  # the last pass is over
    ended: bool = False
    named_cuda: bool = True  # the script names a GPU, as far as is known
    script: events.ScriptEnded | None = None  # set if the script ended before the last pass did
    script_error: events.ScriptFailed | None = None
    own_failure: events.LaunchscopeFailed | None = None  # an error of launchscope's own
    signal: int | None = None  # the signal that asked us to end
    timed_out: bool = False
    killed: bool = False
    hung_in: str | None = None
    lost_rank: int | None = None  # a rank that ended first; this one was stopped then
    refused_write: str | None = None  # the path that a run must not write to
    write_error: OSError | None = None  # why not everything the child found is on disk

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown():
                self.on_gpu = event.on_gpu
            case events.PassStarted():
                self.saw_torch = True
                self.current_pass, limit = event.name, event.limit_s
                self.pass_deadline = None if limit is None else time.monotonic() + limit
            case events.WriteRefused():
                self.refused_write = self.refused_write or event.path
            case events.PassSkipped():
                self.skipped.add(event.name)
            case events.PassFailed():
                self.failures[event.name] = event.reason
                self._pass_over()
            case events.PassEnded():
                self._pass_over()
            case events.FilesLoaded():
                self.loaded = event
            case events.EnoughMeasured():
                self.enough = True
            case events.MeasuringEnded():
                self.done = True
                self._pass_over()
            case events.ScriptEnded() if not self.killed:
                self.script = event
            case events.ScriptFailed():
                self.script_error = event
            case events.LaunchscopeFailed():
                self.own_failure = event
            case events.Remark():
                self.notes.append(remark(event))
            case events.Note(passing=False):
                self.notes.append(event.text)
            case events.ChildEnded():
                self.ended, self.named_cuda = True, event.named_cuda

    def _pass_over(self) -> None:
        self.current_pass, self.pass_deadline = None, None

    @property
    def seen(self) -> events.ScriptEnded:
        """What was seen of the script; all zero unless it ended before the last pass did."""
        return self.script or events.ScriptEnded()

    @property
    def was_stopped(self) -> bool:
        """Whether the script would have gone on without us."""
        measured = self.done and not self.to_its_end
        return measured or self.killed or self.crashed_in is not None

    @property
    def cut_short(self) -> bool:
        """Something ended the run that would end another one, too."""
        return self.signal is not None or self.timed_out or self.write_error is not None

    @property
    def failed(self) -> bool:
        """The script itself ended badly before everything was measured."""
        return not (self.done or self.enough) and self.exit_code not in (0, None)

    @property
    def crashed_in(self) -> str | None:
        """The pass during which the process died without an event; None if it did not."""
        if self.ended or self.done or self.killed or self.script_error or self.cut_short:
            return None  # a write that failed may be that of the event
        return None if self.current_pass == events.WARMUP else self.current_pass

    def broken_pass(self) -> tuple[str, Reason] | None:
        """The pass that was cut off and why; None if none was."""
        if self.hung_in is not None:
            return self.hung_in, Reason("hung")
        if self.timed_out and self.current_pass is not None:
            return self.current_pass, Reason("time_limit")
        if self.crashed_in is not None:
            code = {} if self.exit_code is None else {"exit_code": self.exit_code}
            return self.crashed_in, Reason("process_died", code)
        if self.script_error is not None and self.script_error.in_pass is not None:
            kind = self.script_error.error
            return self.script_error.in_pass, Reason("raised_in_pass", {"kind": kind})
        return None

    @property
    def raised_in(self) -> str | None:
        """The pass that may have caused the error that ended the script."""
        return None if self.script_error is None else self.script_error.in_pass

    def remarks(self) -> list[str]:
        """What a reader of the recording has to know about this run."""
        found = list(self.notes)
        if self.own_failure is not None:
            text = reason_text(self.own_failure.reason)
            found.append(f"{text} and measured no more; {_BUG}")
        if self.script and not (self.failed or self.script.searching or self.enough):
            steps = plural(self.script.steps, "step")
            text = f"the script ended after {steps}, before the last pass"
            found.append(text)
        if self.write_error is not None and not self.done:
            why = self.write_error.strerror or self.write_error
            found.append(f"results are missing because they could not be written ({why})")
        if self.seen.processes:
            found.append(f"{self.started_processes}; launchscope does not measure what runs there")
        return found

    @property
    def started_processes(self) -> str:
        return f"the script started {plural(self.seen.processes, 'process')} of its own"


def problem_of(
    report: ChildReport,
    *,
    measured: bool,
    schedule: Schedule = _USUAL,
    ran_well: bool = False,
) -> LaunchscopeError | None:
    """The problem of the last run as an error to report; None if it went as it should. The script's
    own failure counts only until it was measured to its end; a capture that fails is a result.
    `ran_well`: it did, in an earlier run."""
    over = report.done or report.enough
    if report.signal is not None:
        return None
    if report.lost_rank is not None and report.killed and not over:
        return MeasureError(
            f"it was stopped, because the script of rank {report.lost_rank} had ended"
        )
    if report.timed_out:
        if measured:
            return None
        hint = "let the script reach its training loop sooner"
        if schedule.wait_for == "optimizer":
            hint = "leave out --wait-for optimizer to measure the forwards"
        return MeasureError(
            "the time limit was reached before any step was timed",
            hint=f"raise --timeout, or {hint}",
        )
    if report.own_failure is not None and not measured:
        return MeasureError(reason_text(report.own_failure.reason), hint=_BUG)
    if over or (measured and (report.hung_in or report.crashed_in)):
        return None
    if report.hung_in is not None:
        return MeasureError(
            f"launchscope stopped the script, because the {report.hung_in} pass took too long",
            hint="run it without launchscope first, to see how long its steps take",
        )
    if not report.exit_code and report.write_error is not None:
        return cannot_write(report.folder.parent, report.write_error)
    if not report.exit_code:
        return None if measured else _nothing_measured(report, schedule)
    when = "before every pass was done" if measured else "before it was measured"
    if ran_well:
        when = f"{when}, although an earlier run went well"
    elif report.raised_in is not None:
        when = f"{when}, while launchscope looked into its steps"
    return _script_error(report, report.exit_code, when, _hint_after(report, ran_well))


def failure_after(report: ChildReport) -> ScriptError | None:
    """How the script itself failed once everything was measured; None if it did not."""
    ended_by_us = report.signal is not None or report.timed_out or report.killed
    if not report.exit_code or ended_by_us or report.crashed_in is not None:
        return None
    return _script_error(report, report.exit_code, "after it was measured")


def _script_error(
    report: ChildReport, code: int, when: str, hint: str | None = None
) -> ScriptError:
    how = f"was ended by {cause_of_death(code)}" if code < 0 else f"ended with exit code {code}"
    raised = report.script_error
    exception = raised.error if raised is not None and not raised.exits else None
    what = f" ({exception})" if exception else ""
    return ScriptError(
        f"the script {how}{what} {when}",
        exit_code=128 - code if code < 0 else code,
        out_of_memory=raised is not None and raised.out_of_memory,
        hint=hint,
    )


def _hint_after(report: ChildReport, ran_well: bool) -> str:
    if ran_well:
        return "see what one run leaves behind for the next (files, ports), or use --max-runs 1"
    raised = report.script_error
    if raised is not None and raised.in_pass is not None and not raised.rehearsed:
        return (
            "run it without launchscope: if it fails there too, the cause is in the script; if "
            f"it does not, {_BUG}"
        )
    return failure_hint(raised)


def failure_hint(raised: events.ScriptFailed | None) -> str:
    """What to try where a script failed, by a GPU that it named and did not get or by itself."""
    if raised is None or not raised.rehearsed:
        return "run it without launchscope first; the same failure should appear"
    at = f" at {place(raised.where)}" if raised.where else ""
    return (
        f"not rehearsed: what fails{at} may need the GPU for which the CPU stood; run the same "
        "command on a machine with a GPU"
    )


def cannot_write(directory: Path, error: OSError) -> MeasureError:
    """The error for results that could not be written to `directory`, or below it."""
    hint = "free some space there, raise the limit (ulimit -f), or set TMPDIR to another folder"
    why = error.strerror or error
    return MeasureError(f"the results could not be written to {directory}: {why}", hint=hint)


def _nothing_measured(report: ChildReport, schedule: Schedule) -> NoStepError:
    seen, steps = report.seen, plural(report.seen.steps, "step")
    too_few = f"{steps}, too few for a warm-up and timings"
    text, hint = f"the script ended after {too_few}", "let it run longer, or use --warmup 2"
    marks = "mark the step in the script: with launchscope.step(): ..."
    no_step = f"no repeating step was found in {plural(seen.forwards, 'forward')}"
    if not report.ended:
        text = (
            "the script ended its process from inside (with os._exit, os.exec or a library that "
            "calls them) before launchscope had seen enough steps"
        )
        hint = "let it run longer, or profile the program that it turns into"
    elif not report.saw_torch:
        text = "the script ended without importing PyTorch"
        hint = "name the script that trains or runs the model"
    elif seen.processes:
        text = f"no step was found: {report.started_processes}, and the work seems to run there"
        hint = (
            "let it train in one process; to measure one process per GPU, use --nproc-per-node, "
            "with a script that reads RANK, LOCAL_RANK and WORLD_SIZE in place of mp.spawn"
        )
    elif schedule.wait_for == "optimizer" and seen.searching and seen.optimizer_steps == 0:
        text = f"no optimizer stepped; the script made {plural(seen.forwards, 'forward')}"
        hint = "leave out --wait-for optimizer to measure the forwards"
    elif schedule.step_from == "marker" and seen.steps == 0:
        text = "no step was marked: the script never entered launchscope.step()"
        hint = "put the step in `with launchscope.step():`, or leave out --step-from marker"
    elif seen.forwards == 0 and seen.steps == 0:
        text = (
            "the script ended without calling a torch.nn.Module that has parameters, or the step() "
            "of an optimizer"
        )
        hint = marks
    elif seen.steps == 0:
        text, hint = no_step, f"let it run longer, or {marks}"
    elif report.failures:
        name, reason = next(iter(report.failures.items()))
        text = f"nothing was measured: the pass {name!r} failed: {reason_text(reason)}"
        hint = "the same command with -v shows more"
    elif schedule.skip_steps:
        text = f"the script made {steps}: --skip-steps {schedule.skip_steps} leaves too few of them"
        hint = "lower --skip-steps, or let the script run longer"
    return NoStepError(text, hint=hint)
