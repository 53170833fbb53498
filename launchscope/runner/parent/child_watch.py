"""Follows one child process from its start to its end: events, time limits, interrupts."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from launchscope.reason_text import reason_text
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.parent.sentinel import GRACE_TERM_S, Sentinel, descendants, send
from launchscope.runner.parent.time_left import TimeLeft
from launchscope.runner.protocol import events
from launchscope.runner.protocol.passes import PASSES
from launchscope.runner.protocol.signals import ENDING, EndSignals, interrupt_signal
from launchscope.wording import listed_first, plural

_POLL_S = 0.02
# How long a child may take to end by itself: once everything is measured (it may be saving
# a checkpoint), when only the process has to go, and after a signal of a batch system before what
# was measured is brought to safety: most kill 30 s later. A DataLoader that is interrupted may wait
# 5 s for each of its workers. Ctrl-C sets no limit: a debugger goes on after it.
_GRACE_DONE_S, _GRACE_EXIT_S, _GRACE_BATCH_S = 120.0, 10.0, 25.0
# A script that waits for another rank, which has ended or has failed, gets so long to notice.
_GRACE_RANK_S, _GRACE_FAILED_S = 10.0, 3.0
# After this long, launchscope says what it waits for after a signal, and later ends the processes
# of the script that it may wait for.
_LATE_S, _END_BELOW_S = 2.0, 10.0
# A later SIGINT is another one; `timeout` sends the same one to us and to our group.
_SAME_SIGNAL_S = 0.25
# The loop was late by more than this: we were stopped (Ctrl-Z), and the script with us.
_STOPPED_S = 2.0
_TICK_S = 1.0
# After this long without an event, launchscope says what it waits for.
_QUIET_S = 30.0
_MOST_NAMED = 8


@dataclass(frozen=True)
class ProgressEvent:
    """Something a person who waits may want to know. `label` says what a pass does; it is the
    `number`th of `passes`, which will all be over in about `left_s`. A "tick" comes once
    a second, "ended" when no process of the script is left."""

    kind: Literal[
        "run", "pass_start", "pass_progress", "pass_end", "note", "details", "tick", "ended"
    ]
    name: str = ""
    label: str = ""
    done: int = 0
    total: int = 0
    text: str = ""
    number: int = 0
    passes: int = 0
    left_s: float | None = None


class ScriptSignals(EndSignals):
    """Signals that come while the script runs, in their order in `came`. They are the script's:
    none ends launchscope before the script has ended."""

    def __init__(self) -> None:
        others = ("SIGQUIT", "SIGUSR1", "SIGUSR2")  # which may have a meaning in this process
        free = [name for name in others if _at_default(name)]
        super().__init__("SIGINT", "SIGTERM", "SIGHUP", *free)
        self.came: list[int] = []
        self._last: dict[int, float] = {}

    @property
    def numbers(self) -> list[int]:
        return list(self._before)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last.get(number, -_SAME_SIGNAL_S) >= _SAME_SIGNAL_S:
            self.came.append(number)
        self._last[number] = now
        if number in ENDING:
            super()._catch(number, frame)


class ChildWatch:
    """Watches child after child; `timeout_s` bounds them together. In a `with` block the signals
    that come are passed on, and no child outlives launchscope. A child that a batch system has
    asked to end may take its time if `on_slow` keeps what was measured; otherwise it is killed."""

    def __init__(
        self,
        on_progress: Callable[[ProgressEvent], None],
        timeout_s: float | None,
        group: RankGroup | None = None,
        on_slow: Callable[[ChildReport], None] | None = None,
        labels: Mapping[str, str] | None = None,  # of what an entry point does
    ):
        self._on_slow = on_slow
        self.signals = ScriptSignals()
        self._sentinel: Sentinel | None = None
        self._on_progress = on_progress
        self._group = group
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._leaving: subprocess.Popen[bytes] | None = None
        self._time_left = TimeLeft()
        self._labels = {events.WARMUP: "finding the step", **(labels or {})}
        self._labels |= {p.name: p.label for p in PASSES.values()}

    @property
    def is_over_time(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def __enter__(self) -> ChildWatch:
        self.signals.__enter__()
        with contextlib.suppress(OSError):
            self._sentinel = Sentinel(self.signals.numbers)
        return self

    def __exit__(self, *raised: object) -> None:
        self.signals.__exit__(*raised)

    def follow(
        self,
        child: subprocess.Popen[bytes],
        folder: RunFolder,
        report: ChildReport,
        time_left: TimeLeft,
    ) -> None:
        """Return when the child is gone, by itself or with help, or is only on its way out."""
        self._time_left = time_left
        if self._sentinel is not None:
            self._sentinel.guard(child.pid)
        try:
            folder.release()
            self._follow(child, folder, report)
        finally:
            # Whatever went wrong here (a terminal that closes while we print to it), nobody else
            # would end the child.
            if self._leaving is not child and child.poll() is None:
                self._end(child, report)
            if self._leaving is not child and self._sentinel is not None:
                self._sentinel.guard(0)

    def _follow(
        self, child: subprocess.Popen[bytes], folder: RunFolder, report: ChildReport
    ) -> None:
        kill_at: float | None = None
        slow_at: float | None = None
        not_interrupted: list[int] = []
        quiet_since, said_what_is_awaited = time.monotonic(), not self._time_left.passes
        last, late_at, end_below_at, tick_at = quiet_since, None, None, quiet_since
        # What came before the child was there did not come to it.
        early = len(self.signals.came)
        counted = False  # as measured, among the ranks
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                report.exit_code = child.wait(timeout=_POLL_S)
            if self._read_events(folder, report):
                quiet_since = time.monotonic()
            if self._group is not None and report.done and not counted:
                counted = True
                self._group.measured()
            if report.exit_code is None:
                while self.signals.came:
                    number, now = self.signals.came.pop(0), time.monotonic()
                    if number in ENDING and report.signal is None:
                        late_at, end_below_at = now + _LATE_S, now + _END_BELOW_S
                    if number in ENDING and number != signal.SIGINT:
                        slow_at = slow_at or now + _GRACE_BATCH_S
                    not_interrupted += self._pass_on(number, child, folder, report, early > 0)
                    early -= 1
            if self.signals.caught is not None:
                report.signal = self.signals.caught
            if report.exit_code is not None:
                if self._group is not None and report.exit_code and report.signal is None:
                    self._group.script_failed()
                _interrupt(not_interrupted)
                return
            if report.done and report.ended and not report.to_its_end:
                # With CUDA the end of the process takes a while; the results can be
                # analyzed in the meantime.
                self._leaving = child
                return
            now = time.monotonic()
            if now - last > _STOPPED_S:
                self._shift_deadlines(now - last, report)
                kill_at = None if kill_at is None else kill_at + now - last
                slow_at = None if slow_at is None else slow_at + now - last
            last = now
            if now >= tick_at:
                tick_at = now + _TICK_S
                self._on_progress(ProgressEvent("tick", left_s=self._time_left.seconds()))
            if slow_at is not None and now > slow_at:
                if self._on_slow is not None:
                    self._on_slow(report)
                elif kill_at is None:
                    kill_at = now
                slow_at = math.inf
            if end_below_at is not None and now > end_below_at:
                end_below_at = None
                _interrupt(not_interrupted)  # the script may wait for them
            if late_at is not None and now > late_at:
                late_at = None
                text = "waiting for the script to end (Ctrl-\\ ends it at once)"
                self._on_progress(ProgressEvent("note", text=text))
            if now - quiet_since > _QUIET_S and not said_what_is_awaited:
                said_what_is_awaited = True
                self._say_what_is_awaited(report)
            stays = False
            if self._group is not None:
                others = self._group.others()
                stays = not others.all_measured
                if others.all_measured:
                    folder.stop()
                if kill_at is None and others.lost is not None:
                    report.lost_rank = others.lost
                    kill_at = now + (_GRACE_FAILED_S if others.failed else _GRACE_RANK_S)
            if kill_at is None and report.done and not (report.to_its_end or stays):
                kill_at = now + (_GRACE_DONE_S if self._group is None else _GRACE_RANK_S)
            if self.is_over_time:
                report.timed_out = not report.done
                kill_at = now
            if report.pass_deadline is not None and now > report.pass_deadline:
                if folder.write_error() is not None:  # it could not report the pass's end
                    report.pass_deadline = None
                    continue
                report.hung_in = report.current_pass
                kill_at = now
            if kill_at is not None and now >= kill_at:
                if report.done and self._group is None:
                    text = "the script did not end by itself and was stopped"
                    report.notes.append(text)
                    self._on_progress(ProgressEvent("note", text=text))
                self._end(child, report)
                self._read_events(folder, report)
                return

    def _pass_on(
        self,
        number: int,
        child: subprocess.Popen[bytes],
        folder: RunFolder,
        report: ChildReport,
        early: bool,
    ) -> list[int]:
        """Give the child a signal that it does not have yet; returns the processes below it that
        have to be ended after it.

        A script that handles SIGTERM or SIGHUP gets that; another one is interrupted as by Ctrl-C,
        so that its `finally:` runs. The others would end it at once. It ends its own processes,
        which may hold locks that it needs.
        """
        with contextlib.suppress(OSError):
            to_group = self._sentinel is not None and self._sentinel.group_got(number)
            if to_group and not early and os.getpgid(child.pid) == os.getpgrp():
                return []
        # A script that is ended already, maybe since then, is in its `finally:` unless it is slow.
        self._read_events(folder, report)
        if number in ENDING and report.done and not report.to_its_end and report.signal is None:
            return []
        if number not in ENDING or number == signal.SIGINT or _catches(child.pid, number):
            send(number, [child.pid])
            return []
        send(interrupt_signal(), [child.pid])
        return descendants(child.pid)

    def _shift_deadlines(self, stopped_s: float, report: ChildReport) -> None:
        if self._deadline is not None:
            self._deadline += stopped_s
        if report.pass_deadline is not None:
            report.pass_deadline += stopped_s

    def settle(self) -> None:
        """Wait until the last child is gone."""
        child, self._leaving = self._leaving, None
        if child is None:
            return
        try:
            child.wait(timeout=_GRACE_EXIT_S)
        except subprocess.TimeoutExpired:
            self._end(child, ChildReport())

    def close(self) -> None:
        """Settle, when no child comes anymore."""
        self.settle()
        sentinel, self._sentinel = self._sentinel, None
        if sentinel is not None:
            sentinel.close()

    def _end(self, child: subprocess.Popen[bytes], report: ChildReport) -> None:
        """SIGTERM, then SIGKILL; processes that the child had started go with it."""
        report.killed = True
        below = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        try:
            report.exit_code = child.wait(timeout=GRACE_TERM_S)
        except subprocess.TimeoutExpired:
            child.kill()
            report.exit_code = child.wait()
        send(signal.SIGKILL, below)

    def _read_events(self, folder: RunFolder, report: ChildReport) -> bool:
        fresh = folder.events()
        for event in fresh:
            report.on_event(event)
            self._time_left.on_event(event)
            progress = self._progress_of(event)
            if progress is not None:
                self._on_progress(progress)
        return bool(fresh)

    def _progress_of(self, event: events.Event) -> ProgressEvent | None:
        """What a person is shown of an event; None for one that is only for us."""
        match event:
            case events.PassStarted():
                return self._pass_event("pass_start", event.name, 0, event.steps)
            case events.PassProgress():
                return self._pass_event("pass_progress", event.name, event.done, event.steps)
            case events.PassEnded():
                text = f"{event.seconds:.1f} s"
            case events.PassFailed():
                text = f"failed: {reason_text(event.reason)}"
            case events.PassSkipped():
                if (info := PASSES.get(event.name)) is not None and info.part_of is not None:
                    return None  # nobody asked for it
                text = f"skipped: {reason_text(event.reason)}"
            case events.Note():
                return ProgressEvent("note", text=event.text)
            case events.LaunchscopeFailed():
                return ProgressEvent("details", text=event.details)
            case _:
                return None
        return ProgressEvent("pass_end", event.name, self._labels[event.name], text=text)

    def _pass_event(
        self, kind: Literal["pass_start", "pass_progress"], name: str, done: int, steps: int
    ) -> ProgressEvent:
        left = self._time_left
        return ProgressEvent(
            kind,
            name,
            self._labels[name],
            done,
            steps,
            number=left.number,
            passes=left.passes,
            left_s=left.seconds(),
        )

    def _say_what_is_awaited(self, report: ChildReport) -> None:
        absent = [] if self._group is None else self._group.absent()
        if report.done:
            text = "everything is measured; waiting for the script to end"
        elif absent and self._group is not None:
            ranks = listed_first([str(rank) for rank in absent], _MOST_NAMED)
            have = "has" if len(absent) == 1 else "have"
            text = (
                f"{plural(len(absent), 'rank')} of {self._group.size:,} {have} not started "
                f"({ranks}); still waiting (Ctrl-C or --timeout ends it)"
            )
        elif report.current_pass == events.WARMUP or not report.saw_torch:
            text = (
                f"no step for {_QUIET_S:.0f} s; still waiting for the script to reach one "
                "(Ctrl-C or --timeout ends it)"
            )
        else:
            return
        self._on_progress(ProgressEvent("note", text=text))


def _interrupt(pids: Collection[int]) -> None:
    """Interrupt processes that the script has started; one that it did not fork knows only
    SIGTERM."""
    number = interrupt_signal()
    aware = {pid for pid in pids if _catches(pid, number)}
    send(number, aware)
    send(signal.SIGTERM, {*pids} - aware)


def _catches(pid: int, number: int) -> bool:
    """Whether a process catches a signal; False where nothing tells."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("SigCgt"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _at_default(name: str) -> bool:
    number = getattr(signal, name, None)
    return number is not None and signal.getsignal(number) == signal.SIG_DFL
