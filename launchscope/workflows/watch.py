"""Watches one script to its end, and reads its windows while it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launchscope.analysis import build_profile
from launchscope.config import Settings
from launchscope.errors import LaunchscopeError, MeasureError
from launchscope.model import Reason, Schedule, Target, Watch, WatchWindow
from launchscope.parser import read_recording
from launchscope.runner.parent.child_report import ChildReport, failure_after, problem_of
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import EntryPoint, Plan
from launchscope.wording import duration, figures, pct, plural
from launchscope.workflows.progress import Progress

_KEYS = ("iteration_ms", "launch_overhead_ms", "data_wait_ms", "sync_wait_ms")


def watch(
    target: Target, settings: Settings, progress: Progress, stdout: int | None
) -> tuple[Watch, LaunchscopeError | None]:
    """The whole run of a script, and what ended it; raises that where nothing was measured."""
    schedule = replace(settings.schedule, timing=30, trace=5)
    options = {"schedule": asdict(schedule), "every_s": settings.every}
    entry = EntryPoint("launchscope.runner.child.passes.watch", "watch", options)
    plan = Plan(target, (), schedule, measures=False, entry_point=entry)
    with TemporaryDirectory(prefix="launchscope-", ignore_cleanup_errors=True) as place:
        run = WatchedRun(target, settings.threshold, RunFolder(Path(place, "run")), progress)
        child = ChildWatch(run.on_event, None)
        with child.signals:
            report = child.carry_out(plan, run.folder, Process(settings.python, stdout=stdout))
    report.failures.update(run.failures)
    report.done, report.enough = run.watch is not None, False
    problem = failure_after(report) if run.watch else problem_of(report, measured=False)
    if child.signals.caught is not None:
        problem = MeasureError("interrupted", exit_code=128 + child.signals.caught)
    if run.watch is None:
        raise problem or MeasureError("nothing was measured")
    return run.watch, problem


@dataclass
class WatchedRun:
    """A run of the script. `watch` is all of it so far; None before its first window."""

    target: Target
    threshold_pct: float
    folder: RunFolder
    progress: Progress
    watch: Watch | None = None
    failures: dict[str, Reason] = field(default_factory=dict)

    def on_event(self, event: ProgressEvent) -> None:
        if (event.kind, event.name) == ("pass_end", "watch"):
            event = replace(event, text=self._news() or event.text)
        if event.name not in ("timing", "trace") and (event.kind, event.name) != ("pass", "watch"):
            self.progress.on_event(event)

    def _news(self) -> str:
        try:
            self.take()
        except Exception as error:  # which must not end a script that runs for days
            self.failures["trace"] = Reason("unreadable_result", {"error": str(error)})
        if self.watch is None:
            return ""
        lost = figures(self.watch.waited_s("launch") / 3600, 2)
        return (
            f"{duration(self.watch.seconds)}, {plural(self.watch.steps, 'step')}: "
            f"{pct(self.watch.share_pct('launch'))} of GPU time waits for launches, {lost} GPU "
            "hours lost so far"
        )

    def take(self) -> None:
        """Reads the steps that were counted last, and the window before them, if there is one. It
        stands for them, as far as they took as long: an evaluation, say, is not divided."""
        if (self.folder.path / "trace.kineto.json").exists():
            self._take_window()
        counted = self.folder.read("pass-watch", tuple[int, float, float])
        if self.watch is None or counted is None:
            return
        steps, seconds, cost_s = counted
        *before, last = self.watch.windows
        fitting = 1000 * (seconds - self.watch.seconds) / last.iteration_ms
        last = replace(last, iterations=last.iterations + min(steps - self.watch.steps, fitting))
        watch = replace(self.watch, steps=steps, seconds=seconds, cost_s=cost_s)
        self.watch = replace(watch, windows=(*before, last))

    def _take_window(self) -> None:
        collected = Collected(self.folder.path.parent)  # it moves the trace there
        collected.take(ChildReport(self.folder.path, on_gpu=True))
        collected.write_recording(self.target, Schedule(), None)
        profile = build_profile(read_recording(collected.directory))
        values = [profile.metrics[key].value for key in _KEYS]
        times = [float(value) for value in values if value is not None]
        if len(times) < len(values):
            raise MeasureError("the idle time of the GPU has no known parts")
        watch = self.watch or Watch(profile.target, profile.environment, self.threshold_pct)
        self.watch = replace(watch, windows=(*watch.windows, WatchWindow(*times)))
