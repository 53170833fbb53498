"""Follows one child process from its start to its end: events, time limits, interrupts."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from launchscope.reason_text import reason_text
from launchscope.runner.parent.child_report import ChildReport, remark
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.parent.script_signals import ScriptSignals
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import Plan
from launchscope.runner.protocol.passes import PASSES

_POLL_S = 0.02
_PARTS = {info.name for info in PASSES.values() if info.part_of is not None}
# How long a child may take to end by itself: once everything is measured (it may be saving
# a checkpoint), when only the process has to go, after another rank has ended or failed, which this
# one may wait for, and after SIGTERM. A signal from outside sets no limit: a debugger goes on.
_GRACE_DONE_S, _GRACE_EXIT_S, _GRACE_RANK_S, _GRACE_TERM_S = 120.0, 10.0, 10.0, 3.0
# After this long, launchscope says what it waits for: without an event, and after a signal.
_QUIET_S, _LATE_S = 30.0, 2.0


@dataclass(frozen=True)
class ProgressEvent:
    """Something a person who waits may want to know. `label` says what a pass does. "results" comes
    once the recording holds a replay, while the script's own loop is measured; "ended" when no
    process of the script is left."""

    kind: Literal["run", "pass", "pass_end", "note", "details", "results", "ended"]
    name: str = ""
    label: str = ""
    done: int = 0
    total: int = 0
    text: str = ""


class ChildWatch:
    """Watches child after child; `timeout_s` bounds them together. In a `with` block of `signals`
    those that come are passed on, and no child outlives launchscope."""

    def __init__(
        self,
        on_progress: Callable[[ProgressEvent], None],
        timeout_s: float | None,
        group: RankGroup | None = None,
        labels: Mapping[str, str] | None = None,  # of what an entry point does
    ):
        self.signals = ScriptSignals()
        self._on_progress = on_progress
        self._group = group
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._labels = {events.WARMUP: "finding the step", **(labels or {})}
        self._labels |= {p.name: p.label for p in PASSES.values()}

    @property
    def is_over_time(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def carry_out(self, plan: Plan, folder: RunFolder, process: Process) -> ChildReport:
        """What a process that carries out the plan came to; it is gone then, by itself or with
        help. Raises MeasureError if it cannot be started, and OSError if there is no room for the
        plan."""
        if self._group is not None:
            process = replace(process, environ={**self._group.begin_run(), **process.environ})
            plan = replace(plan, stop_file=folder.stop_file)
        plan = replace(plan, parent=os.getpid())
        whole = not plan.measures
        report = ChildReport(folder.path, to_its_end=whole, done=whole)
        folder.create(plan)
        child = process.start(folder.path)
        run = _Run(child, folder, report, bool(plan.passes))
        self.signals.follow(child)
        try:
            self._follow(run)
        finally:
            self.signals.follow(None)
            # Whatever went wrong here (a terminal that closes while we print to it), nobody else
            # would end the child.
            if child.poll() is None:
                run.end()
                self._read_events(run)
            folder.remove_plan()
        report.write_error = folder.write_error()
        return report

    def _follow(self, run: _Run) -> None:
        report = run.report
        while not self._must_end(run):
            with contextlib.suppress(subprocess.TimeoutExpired):
                report.exit_code = run.child.wait(timeout=_POLL_S)
            if self._read_events(run):
                run.quiet_since = time.monotonic()
            report.signal = self.signals.caught
            if self._group is not None:
                self._tell_ranks(self._group, run)
            if report.exit_code is not None:
                return
            self._say(run)
        if report.done and not (report.ended or self._group or self.signals.at_once):
            report.notes.append("the script did not end by itself and was stopped")
            self._note(report.notes[-1])

    def _must_end(self, run: _Run) -> bool:
        """Whether the child is ended now; says why in the report."""
        now, report = time.monotonic(), run.report
        if self.is_over_time:
            report.timed_out = not report.done
            return True
        hangs = report.pass_deadline is not None and now > report.pass_deadline
        # It may have gone on while we analyzed; and without room it cannot report the pass's end.
        if hangs and not self._read_events(run) and run.folder.write_error() is None:
            report.hung_in = report.current_pass
            return True
        if report.done and not report.to_its_end:
            if report.ended:
                run.end_by(now + _GRACE_EXIT_S)
            elif self._group is None:
                run.end_by(now + _GRACE_DONE_S)
        return self.signals.at_once or now > run.end_at

    def _tell_ranks(self, group: RankGroup, run: _Run) -> None:
        """Our part in the run of all ranks: all stop at the same step, and none waits for one that
        is lost."""
        report = run.report
        if report.done and not run.told_ranks:
            run.told_ranks = True
            group.measured()
        if report.exit_code and report.signal is None:
            group.script_failed()
        others, end_by = group.others(), time.monotonic() + _GRACE_RANK_S
        if others.all_measured:
            run.folder.stop()
            if report.done and not report.to_its_end:
                run.end_by(end_by)
        if others.lost is not None and math.isinf(run.end_at):
            report.lost_rank = others.lost
            run.end_by(end_by)

    def _read_events(self, run: _Run) -> bool:
        fresh = run.folder.events()
        for event in fresh:
            run.report.on_event(event)
            progress = self._progress_of(event)
            if progress is not None:
                self._on_progress(progress)
        return bool(fresh)

    def _progress_of(self, event: events.Event) -> ProgressEvent | None:
        """What a person is shown of an event; None for one that is only for us."""
        match event:
            case events.PassStarted() | events.PassProgress():
                done = event.done if isinstance(event, events.PassProgress) else 0
                return ProgressEvent(
                    "pass", event.name, self._labels[event.name], done, event.steps
                )
            case events.PassEnded():
                text = f"{event.seconds:.1f} s"
            case events.PassFailed():
                text = f"failed: {reason_text(event.reason)}"
            case events.PassSkipped() if event.name not in _PARTS:  # nobody asked for those
                text = f"skipped: {reason_text(event.reason)}"
            case events.Remark():
                return ProgressEvent("note", text=remark(event))
            case events.Note():
                return ProgressEvent("note", text=event.text)
            case events.LaunchscopeFailed():
                return ProgressEvent("details", text=event.details)
            case _:
                return None
        return ProgressEvent("pass_end", event.name, self._labels[event.name], text=text)

    def _say(self, run: _Run) -> None:
        """What a person wants to know who waits."""
        now, report = time.monotonic(), run.report
        if report.signal is None:
            run.late_at = now + _LATE_S
        elif now > run.late_at:
            run.late_at = math.inf
            self._note("waiting for the script to end (another Ctrl-C ends it at once)")
        searching = report.current_pass == events.WARMUP or not report.saw_torch
        if searching and now > run.quiet_since + _QUIET_S and run.has_passes:
            run.quiet_since = math.inf
            waits = "still waiting (Ctrl-C or --timeout ends it)"
            self._note(f"no step for {_QUIET_S:.0f} s; {waits}")

    def _note(self, text: str) -> None:
        self._on_progress(ProgressEvent("note", text=text))


@dataclass
class _Run:
    """A child that is followed, and until when launchscope waits for what."""

    child: subprocess.Popen[bytes]
    folder: RunFolder
    report: ChildReport
    has_passes: bool
    quiet_since: float = field(default_factory=time.monotonic)
    late_at: float = math.inf
    end_at: float = math.inf
    told_ranks: bool = False

    def end_by(self, moment: float) -> None:
        """Wait no longer than until then, or than was said before."""
        self.end_at = min(self.end_at, moment)

    def end(self) -> None:
        """SIGTERM, then SIGKILL."""
        self.report.killed = True
        self.child.terminate()
        try:
            self.report.exit_code = self.child.wait(timeout=_GRACE_TERM_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.report.exit_code = self.child.wait()
