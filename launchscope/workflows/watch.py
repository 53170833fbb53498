"""Watches one script to its end, and reads its windows while it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launchscope.analysis import build_profile
from launchscope.config import Settings
from launchscope.errors import LaunchscopeError, MeasureError
from launchscope.model import Environment, Schedule, Target, Watch, Window
from launchscope.parser import read_recording
from launchscope.reason_text import reason_text
from launchscope.report.documents.watch import WAITS, headline
from launchscope.runner.parent.child_report import ChildReport, failure_after, problem_of
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import EntryPoint, Plan
from launchscope.workflows.progress import Progress


def watch(
    target: Target, settings: Settings, progress: Progress, stdout: int | None
) -> tuple[Watch, LaunchscopeError | None]:
    """The whole run of a script, and what ended it; raises that where nothing was measured."""
    schedule = replace(settings.schedule, timing=30, trace=3)
    options = {"schedule": asdict(schedule), "every_s": settings.every}
    entry = EntryPoint("launchscope.runner.child.passes.watch", "watch", options)
    plan = Plan(target, (), schedule, measures=False, entry_point=entry)
    nothing = Watch(target, Environment(), settings.threshold)
    with TemporaryDirectory(prefix="launchscope-", ignore_cleanup_errors=True) as place:
        run = WatchedRun(RunFolder(Path(place, "run")), progress, nothing)
        child = ChildWatch(run.on_event, None)
        with child.signals:
            report = child.carry_out(plan, run.folder, Process(settings.python, stdout=stdout))
    report.done = run.watch.steps > 0
    why = "; ".join(map(reason_text, report.failures.values())) or run.unusable
    problem = failure_after(report) if report.done else problem_of(report, measured=False)
    if child.signals.caught is not None:
        problem = MeasureError("interrupted", exit_code=128 + child.signals.caught)
    elif why and not (report.done or report.exit_code):
        problem = MeasureError(f"no window was measured: {why}", hint="try launchscope profile")
    if problem is not None and not report.done:
        raise problem
    return run.watch, problem


@dataclass
class WatchedRun:
    """A run of the script; `watch` is what is known of it so far."""

    folder: RunFolder
    progress: Progress
    watch: Watch
    unusable: str = ""  # why a window is

    def on_event(self, event: ProgressEvent) -> None:
        try:
            if (event.kind, event.name) == ("pass_end", "trace"):
                self.take_window()
            elif (event.kind, event.name) == ("pass_end", "watch"):
                self.take_steps(event)
            elif event.name not in ("watch", "timing", "trace"):
                self.progress.on_event(event)
        except Exception as error:  # which must not end a script that runs for days
            self.unusable = str(error)

    def take_window(self) -> None:
        """Reads the window that has just ended."""
        collected = Collected(self.folder.path.parent)  # it moves the trace there
        collected.take(ChildReport(self.folder.path, on_gpu=True))
        collected.write_recording(self.watch.target, Schedule(), None)
        profile = build_profile(read_recording(collected.directory))
        (collected.directory / "trace.kineto.json").unlink()
        keys = ("iteration_ms", *WAITS)
        values = {key: value for key in keys if (value := profile.value(key)) is not None}
        if len(values) < len(keys):
            raise MeasureError("; ".join(profile.notes) or "the traced steps wait for longer")
        known = replace(self.watch, target=profile.target, environment=profile.environment)
        self.watch = replace(known, windows=(*known.windows, Window(**values)))

    def take_steps(self, event: ProgressEvent) -> None:
        """Reads the steps that were counted behind the last window. It stands for them, as far as
        they took as long: an evaluation, say, is not divided."""
        counted = self.folder.read("pass-watch", tuple[int, float, float])
        if counted is None:  # it has failed
            self.progress.on_event(event)
        elif self.watch.windows:
            steps, seconds, cost_s = counted
            *others, last = self.watch.windows
            fitting = 1000 * (seconds - self.watch.seconds) / last.iteration_ms
            more = min(steps - self.watch.steps, fitting)
            last = replace(last, iterations=last.iterations + more)
            known = replace(self.watch, windows=(*others, last))
            self.watch = replace(known, steps=steps, seconds=seconds, cost_s=cost_s)
            self.progress.message(headline(self.watch))
