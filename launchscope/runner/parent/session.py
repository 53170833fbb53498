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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from launchscope.errors import LaunchscopeError, MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.child.passes import SCOPE, all_passes
from launchscope.runner.parent.child_report import ChildReport, death_of, judge, unwritable
from launchscope.runner.parent.child_watch import ChildWatch, Event
from launchscope.runner.parent.collect import Collected
from launchscope.runner.protocol.folder import ResultFolder
from launchscope.runner.protocol.signals import asking_signal

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


@dataclass(frozen=True)
class RunOptions:
    """How the script is run. `timeout_s` bounds all runs together; None: no bound.

    `environ` is added to its environment, `stdout` is the file descriptor that it prints to
    (None: ours), and `adopt` names a way to adopt graphs that it is run under.
    """

    python: str | None = None
    timeout_s: float | None = None
    max_runs: int = 4
    environ: Mapping[str, str] = field(default_factory=dict)
    stdout: int | None = None
    adopt: str | None = None


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
    listen: Callable[[Event], None],
) -> Outcome:
    """Run the target until every pass has its result or cannot get one."""
    return _Session(target, schedule, options, directory, listen).run()


class _Session:
    def __init__(
        self,
        target: Target,
        schedule: Schedule,
        options: RunOptions,
        directory: Path,
        listen: Callable[[Event], None],
    ):
        self.target = target
        self.schedule = schedule
        self.options = options
        self.directory = directory
        self.listen = listen
        self.collected = Collected(self.directory)
        self.side_stream = True
        self._asked: tuple[Schedule, list[str]] | None = None  # of the last run, and what for
        self._watch = ChildWatch(listen, options.timeout_s, schedule.full)

    def run(self) -> Outcome:
        signals = self._watch.signals
        with signals:
            outcome = self._run()
        if signals.caught is None or outcome.interrupted:
            return outcome
        # It came when no child was left to be asked.
        return replace(outcome, interrupted=True, exit_code=128 + signals.caught)

    def _run(self) -> Outcome:
        wanted = [kind.name for kind in all_passes() if self._steps_of(kind.name) > 0]
        report = ChildReport()
        problem: LaunchscopeError | None = None
        why = ""
        while True:
            if self.collected.runs and not why:
                break
            if self.collected.runs >= self.options.max_runs:
                self.collected.note(
                    f"not everything was measured: {why} needs one more run of the script "
                    f"(--max-runs is {self.options.max_runs})"
                )
                break
            self._watch.settle()
            self._announce(why)
            remaining = [name for name in wanted if self.collected.lacks(name)]
            try:
                report = self._run_child(remaining)
            except OSError as error:
                report.unwritable = error
                break
            self.collected.take(report)
            if report.interrupted or report.timed_out or report.unwritable is not None:
                break
            why = self._on_default_stream() or self._why_again(report, wanted)
        results = self.collected.results
        problem = judge(report, results, "inspect" in results, self.schedule.step_from)
        if problem is None and self.schedule.full and report.exit_code and not report.interrupted:
            how = "was ended by" if report.exit_code < 0 else "ended with"
            self.collected.note(
                f"after it was measured the script {how} {death_of(report.exit_code)}"
            )
        try:
            self.collected.write_recording(self.target, self.schedule, report.exit_code)
        except OSError as error:
            raise unwritable(self.directory, error) from error
        return Outcome(
            self.directory,
            problem,
            report.interrupted,
            _code(report, problem),
            self._watch.settle,
        )

    # ------------------------------------------------------------------------ planning

    def _steps_of(self, name: str) -> int:
        # The passes around the replay have no count of their own.
        around = name == "replay_trace" or name.startswith(SCOPE)
        return int(getattr(self.schedule, "replay" if around else name))

    def _announce(self, why: str) -> None:
        first = self.collected.runs == 0
        text = f"running {self.target.name}" if first else f"running the script again: {why}"
        self.listen(Event("run", self.target.name, self.collected.runs + 1, text=text))
        if not first:
            self.collected.note(f"the script was run again: {why}")

    def _on_default_stream(self) -> str:
        """Measure again without the side stream if something insists on the legacy one.

        Torch's side streams do not wait for the legacy stream: such a script may compute
        nonsense there, and its times mean nothing.
        """
        trace = self.collected.results.get("trace") or {}
        if not self.side_stream or not trace.get("legacy_kernels"):
            return ""
        self.side_stream = False
        for name in ("timing", "timing_second", "trace"):
            self.collected.results.pop(name, None)
        return "some of its kernels run on the legacy default stream, so all of it has to"

    def _why_again(self, report: ChildReport, wanted: list[str]) -> str:
        """Why another run would give more; empty if it would not."""
        worth = {kind.name for kind in all_passes() if kind.worth_a_run}
        open_ = [name for name in wanted if self.collected.lacks(name) and name in worth]
        # The replay's own passes follow it or not at all.
        if "replay" not in open_:
            open_ = [name for name in open_ if name not in ("replay_trace", "verify")]
        if not self._smaller_may_work(report):
            open_ = [name for name in open_ if not name.startswith(SCOPE)]
        if self.collected.on_gpu is False:
            open_ = [name for name in open_ if name == "inspect"]
        if not open_:
            return ""
        deferred = [name for name in report.deferred if name in open_]
        if deferred:
            return f"{deferred[0]} needs a process of its own"
        if report.crashed_in is not None:
            return f"{report.crashed_in} ended the process; {', '.join(open_)} still to do"
        if all(name.startswith(SCOPE) for name in open_):
            return "a smaller part of the step may be captured"
        if report.several_threads:  # fewer steps would not bring them into one
            return ""
        if report.script_ended and report.steps >= 3 and not report.failed:
            shorter = self._shorter(report, open_)
            if shorter is not None:
                self.schedule, self._asked = shorter, (shorter, open_)
                return f"its step was seen {report.steps} times, so every pass takes fewer"
        given_up = report.script_ended and report.searching and not report.failed
        if not given_up or self.schedule.step_from != "auto":
            return ""
        if report.optimizer_steps >= 3:
            self.schedule = replace(self.schedule, step_from="optimizer")
            self.collected.note(
                "the training steps have no fixed course, so a step is everything "
                "between two optimizer steps"
            )
            return "its optimizer steps are the steps"
        if report.forwards >= 3:
            self.schedule = replace(self.schedule, step_from="forward")
            self.collected.note("no training step was seen, so each forward is taken for a step")
            return "its forwards are the steps"
        return ""

    def _smaller_may_work(self, report: ChildReport) -> bool:
        """Whether the whole step was tried and cannot be captured as it is."""
        replay = self.collected.results.get("replay") or {}
        return not report.script_ended and replay.get("status") in ("what_if", "blocked", "failed")

    def _shorter(self, report: ChildReport, open_: list[str]) -> Schedule | None:
        """A schedule that fits into the steps the script really makes; None if none does."""
        now = self.schedule
        planned = now.warmup + sum(self._steps_of(name) for name in open_ if name != "replay_trace")
        room = report.steps
        if planned <= room:
            # The next run has fewer passes to do and gets further, unless it is made already.
            return now if not report.searching and self._asked != (now, open_) else None
        share = max(0.0, (room - 2) / max(1, planned))
        warmup = min(now.warmup, max(3, int(now.warmup * share)))

        def fewer(name: str, least: int) -> int:
            steps = getattr(now, name)
            return min(steps, max(least, int(steps * share))) if steps else 0

        shorter = replace(
            now,
            warmup=warmup,
            timing=fewer("timing", 3),
            trace=fewer("trace", 2),
            inspect=fewer("inspect", 2),
            replay=fewer("replay", 10),
        )
        return None if shorter == now else shorter

    # ------------------------------------------------------------------------- one run

    def _run_child(self, passes: list[str]) -> ChildReport:
        collected = self.collected
        collected.runs += 1
        folder = ResultFolder(self.directory / f"run-{collected.runs}")
        harmless = {k.name for k in all_passes() if k.worth_a_run and not k.captures}
        # A script that is to go on must not share its process with a capture.
        finishing = self.schedule.full and bool(harmless.intersection(passes))
        spec = {
            "target": asdict(self.target),
            "passes": passes,
            "schedule": asdict(self.schedule),
            "stop_after": not finishing,
            "allow_captures": not finishing,
            "side_stream": self.side_stream,
            "adopt": self.options.adopt,
            "earlier": collected.results,
            "parent": os.getpid() if _on_main_thread() else None,
            "asked_by": asking_signal(),
        }
        folder.make_for_child(spec)
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
        report.unwritable = folder.unwritable()
        return report


def _code(report: ChildReport, problem: LaunchscopeError | None) -> int:
    """Our exit code, as a shell gives it where a signal ended the run."""
    if report.signal is not None:
        return 128 + report.signal
    return problem.exit_code if problem is not None else 0


def _on_main_thread() -> bool:
    """For Linux a child's parent is the thread that started it, which may end before we do."""
    return threading.current_thread() is threading.main_thread()


def _nvtx_folder(python: str | None) -> str:
    """Our own nvtx, lent to a child that runs the same interpreter version; else nothing."""
    if python is not None and os.path.realpath(python) != os.path.realpath(sys.executable):
        return ""
    spec = importlib.util.find_spec("nvtx")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
