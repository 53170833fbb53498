"""The parent: runs the script as often as the passes need, and collects one Recording.

Every child reports through a folder of its own. Whatever happens to a child, what it had
written by then is kept, and `recording.json` is always written.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from launchscope.errors import LaunchscopeError, MeasureError
from launchscope.model import Schedule, Target
from launchscope.reason_text import cause_of_death
from launchscope.runner.child.passes import AnyPass, all_passes
from launchscope.runner.parent.child_report import (
    ChildReport,
    cannot_write,
    problem_of,
)
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.plain import to_plain
from launchscope.runner.protocol.plan import Plan
from launchscope.runner.protocol.signals import interrupt_signal

# Runs the child in whatever interpreter the person chose, without putting launchscope's
# own surroundings on its sys.path.
_BOOTSTRAP = """\
import sys, importlib.util as u
if not getattr(sys.flags, 'safe_path', False): del sys.path[0]
def load(name, folder):
    spec = u.spec_from_file_location(
        name, folder + '/__init__.py', submodule_search_locations=[folder])
    sys.modules[name] = module = u.module_from_spec(spec)
    spec.loader.exec_module(module)
load('launchscope', sys.argv[1])
if sys.argv[3] and u.find_spec('nvtx') is None: load('nvtx', sys.argv[3])
from launchscope.runner.child.main import main
sys.exit(main(sys.argv[2]))
"""
# Events of a kind that was seen at least this often can be steps.
_SEEN_OFTEN = 3


@dataclass(frozen=True)
class RunOptions:
    """How the script is run. `timeout_s` bounds all runs together; None: no bound.

    `environ` is added to its environment, `stdout` is the file descriptor that it prints to
    (None: ours), and `strategy` names the way to adopt graphs that it runs under.
    """

    python: str | None = None
    timeout_s: float | None = None
    max_runs: int = 4
    environ: Mapping[str, str] = field(default_factory=dict)
    stdout: int | None = None
    strategy: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it. `directory` holds recording.json even when there is a problem.

    The script's last process may still be on its way out; `settle` waits for it, so that
    nothing it prints comes after the report.
    """

    directory: Path
    problem: LaunchscopeError | None
    interrupted: bool
    exit_code: int
    settle: Callable[[], None] = lambda: None


def record(
    target: Target,
    schedule: Schedule,
    options: RunOptions,
    directory: Path,
    on_progress: Callable[[ProgressEvent], None],
) -> Outcome:
    """Run the target until every pass has its result or cannot get one."""
    return _Session(target, schedule, options, directory, on_progress).run()


class _Session:
    def __init__(
        self,
        target: Target,
        schedule: Schedule,
        options: RunOptions,
        directory: Path,
        on_progress: Callable[[ProgressEvent], None],
    ):
        self.target = target
        self.schedule = schedule
        self.options = options
        self.directory = directory
        self.collected = Collected(directory)
        self.side_stream = True
        self._passes = [kind for kind in all_passes() if kind.steps(schedule) > 0]
        # The last schedule that was made to fit the script, and the passes it was made for.
        self._fitted: tuple[Schedule, list[type[AnyPass]]] | None = None
        self._on_progress = on_progress
        self._watch = ChildWatch(on_progress, options.timeout_s, schedule.full)

    def run(self) -> Outcome:
        signals = self._watch.signals
        with signals:
            outcome = self._run()
        if signals.caught is None or outcome.interrupted:
            return outcome
        # It came when there was no child left to stop.
        return replace(outcome, interrupted=True, exit_code=128 + signals.caught)

    def _run(self) -> Outcome:
        collected, options = self.collected, self.options
        report = ChildReport()
        why = ""
        while why or not collected.runs:
            if collected.runs >= options.max_runs:
                collected.note(
                    f"not everything was measured: {why}, which takes one more run of the script "
                    f"(--max-runs is {options.max_runs})"
                )
                break
            self._watch.settle()
            self._announce(why)
            try:
                report = self._run_child(self._open_passes())
            except OSError as error:
                report.write_error = error
                break
            collected.take(report)
            if report.interrupted or report.timed_out or report.write_error is not None:
                break
            why = self._leave_side_stream() or self._why_again(report)
        measured = "timing" in collected.results or "inspect" in collected.results
        problem = problem_of(report, measured=measured, step_from=self.schedule.step_from)
        if problem is None and self.schedule.full and report.exit_code and not report.interrupted:
            how = "was ended by" if report.exit_code < 0 else "ended with"
            collected.note(
                f"after it was measured, the script {how} {cause_of_death(report.exit_code)}"
            )
        try:
            collected.write_recording(self.target, self.schedule, report.exit_code)
        except OSError as error:
            raise cannot_write(self.directory, error) from error
        return Outcome(
            self.directory,
            problem,
            report.interrupted,
            _exit_code(report, problem),
            self._watch.settle,
        )

    # ------------------------------------------------------------------------ planning

    def _open_passes(self) -> list[type[AnyPass]]:
        """The passes that have neither a result nor a reason for having none."""
        return [kind for kind in self._passes if self.collected.lacks(kind.name)]

    def _announce(self, why: str) -> None:
        first = self.collected.runs == 0
        text = f"running {self.target.name}" if first else f"running the script again: {why}"
        self._on_progress(ProgressEvent("run", self.target.name, text=text))
        if not first:
            self.collected.note(f"the script was run again: {why}")

    def _leave_side_stream(self) -> str:
        """Measure again without the side stream if something insists on the legacy one.

        Torch's side streams do not wait for the legacy stream: such a script may compute
        nonsense there, and its times mean nothing.
        """
        results = self.collected.results
        legacy = any(getattr(result, "legacy_kernels", 0) for result in results.values())
        if not self.side_stream or not legacy:
            return ""
        self.side_stream = False
        self.collected.needs_legacy_stream = True
        for kind in self._passes:
            if kind.depends_on_stream:
                results.pop(kind.name, None)
        return "some of its kernels run on the legacy default stream, so all of it has to"

    def _why_again(self, report: ChildReport) -> str:
        """Why another run would give more; empty if it would not."""
        open_ = self._worth_another_run(report)
        if not open_:
            return ""
        names = [kind.name for kind in open_]
        deferred = [name for name in report.deferred if name in names]
        if deferred:
            return f"{deferred[0]} needs a process of its own"
        if report.crashed_in is not None:
            return f"{report.crashed_in} ended the process before {', '.join(names)} could run"
        if all(kind.part_of is not None for kind in open_):
            return "a smaller part of the step may be captured"
        script = report.script
        # Where the work is spread over threads, fewer steps would not bring it into one.
        if script is None or report.failed or report.several_threads:
            return ""
        if script.steps >= _SEEN_OFTEN:
            shorter = self._fitting(script.steps, script.searching, open_)
            if shorter is not None:
                self.schedule, self._fitted = shorter, (shorter, open_)
                return f"its step was seen {script.steps} times, so every pass takes fewer"
        if not script.searching or self.schedule.step_from != "auto":
            return ""
        if script.optimizer_steps >= _SEEN_OFTEN:
            self.schedule = replace(self.schedule, step_from="optimizer")
            self.collected.note(
                "the training steps do not repeat one sequence of events, so a step is everything "
                "between two optimizer steps"
            )
            return "its optimizer steps are the steps"
        if script.forwards >= _SEEN_OFTEN:
            self.schedule = replace(self.schedule, step_from="forward")
            self.collected.note("no training step was seen, so each forward counts as a step")
            return "its forwards are the steps"
        return ""

    def _worth_another_run(self, report: ChildReport) -> list[type[AnyPass]]:
        open_ = [kind for kind in self._open_passes() if kind.worth_another_run]
        if self.collected.on_gpu is False:
            open_ = [kind for kind in open_ if kind.on_cpu]
        # What follows another pass runs in the same process as that one, or not at all.
        open_ = [kind for kind in open_ if kind.follows is None or kind.follows in open_]
        if report.script is not None:  # more passes would see no more steps
            return [kind for kind in open_ if kind.part_of is None]
        return [kind for kind in open_ if kind.part_of is None or self._cannot_run(kind.part_of)]

    def _cannot_run(self, kind: type[AnyPass]) -> bool:
        """Whether the pass was tried and cannot measure the step as it is."""
        status = getattr(self.collected.result(kind), "status", None)
        return status in ("what_if", "blocked", "failed")

    def _fitting(self, made: int, searching: bool, open_: list[type[AnyPass]]) -> Schedule | None:
        """A schedule that fits into the steps that the script really makes; None if none does."""
        now = self.schedule
        planned = now.warmup + sum(kind.steps(now) for kind in open_)
        if planned <= made:
            # The next run has fewer passes to do and gets further, unless it was made already.
            return now if not searching and self._fitted != (now, open_) else None
        share = max(0.0, (made - 2) / max(1, planned))
        shorter = replace(now, warmup=min(now.warmup, max(3, int(now.warmup * share))))
        for kind in all_passes():
            if kind.fewest_steps is not None:
                steps = kind.steps(now)
                fewer = min(steps, max(kind.fewest_steps, int(steps * share)))
                shorter = replace(shorter, **{kind.name: fewer})  # type: ignore[arg-type]
        return None if shorter == now else shorter

    # ------------------------------------------------------------------------- one run

    def _run_child(self, passes: list[type[AnyPass]]) -> ChildReport:
        collected = self.collected
        collected.runs += 1
        folder = RunFolder(self.directory / f"run-{collected.runs}")
        # A script that is to go on must not share its process with a capture.
        finishing = self.schedule.full and any(
            kind.worth_another_run and not kind.captures for kind in passes
        )
        folder.create(
            Plan(
                target=self.target,
                passes=tuple(kind.name for kind in passes),
                schedule=self.schedule,
                stop_after=not finishing,
                allow_captures=not finishing,
                side_stream=self.side_stream,
                strategy=self.options.strategy,
                earlier=to_plain(collected.results),
                parent_pid=os.getpid() if _on_main_thread() else None,
                interrupt_signal=interrupt_signal(),
            )
        )
        report = ChildReport(folder=folder.path)
        package = Path(__file__).resolve().parents[2]
        command = [
            self.options.python or sys.executable,
            "-c",
            _BOOTSTRAP,
            os.fspath(package),
            os.fspath(folder.path),
            _nvtx_folder(self.options.python),
        ]
        try:
            child = subprocess.Popen(
                command,
                env={**os.environ, **self.options.environ},
                stdout=self.options.stdout,
            )
        except OSError as error:
            raise MeasureError(
                f"the interpreter {command[0]} could not be started: {error.strerror}",
                hint="--python takes the path of a Python interpreter",
            ) from error
        self._watch.follow(child, folder, report)
        report.write_error = folder.write_error()
        return report


def _exit_code(report: ChildReport, problem: LaunchscopeError | None) -> int:
    """Our exit code, as a shell gives it where a signal ended the run."""
    if report.signal is not None:
        return 128 + report.signal
    return problem.exit_code if problem is not None else 0


def _on_main_thread() -> bool:
    """On Linux the parent of a child is the thread that started it, which may end before we do."""
    return threading.current_thread() is threading.main_thread()


def _nvtx_folder(python: str | None) -> str:
    """Our own nvtx, lent to a child that runs the same interpreter version; else nothing."""
    if python is not None and os.path.realpath(python) != os.path.realpath(sys.executable):
        return ""
    spec = importlib.util.find_spec("nvtx")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
