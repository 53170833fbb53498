"""Follows one child process from its start to its end: events, time limits, interrupts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from launchscope.reason_text import reason_text
from launchscope.runner.child.passes import AnyPass, all_passes
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import (
    WARMUP,
    Event,
    Note,
    PassEnded,
    PassFailed,
    PassProgress,
    PassSkipped,
    PassStarted,
)
from launchscope.runner.protocol.signals import EndSignals, interrupt_signal

_POLL_S = 0.02
# How long a child may take to end by itself: once everything is measured (it may be saving
# a checkpoint), when only the process has to go, after an interrupt, and after SIGTERM.
_GRACE_DONE_S, _GRACE_EXIT_S, _GRACE_INTERRUPT_S, _GRACE_TERM_S = 120.0, 10.0, 5.0, 3.0
# After this long without an event the person is told what launchscope waits for.
_QUIET_S = 30.0


@dataclass(frozen=True)
class ProgressEvent:
    """Something a person who waits may want to know. `label` says what a pass does."""

    kind: Literal["run", "pass_start", "pass_progress", "pass_end", "note"]
    name: str = ""
    label: str = ""
    done: int = 0
    total: int = 0
    text: str = ""


class ChildWatch:
    """Watches child after child; `timeout_s` bounds them together."""

    def __init__(
        self, on_progress: Callable[[ProgressEvent], None], timeout_s: float | None, full: bool
    ):
        self.signals = EndSignals()
        self._on_progress = on_progress
        self._full = full
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._leaving: subprocess.Popen[bytes] | None = None
        self._said_what_is_awaited = False
        self._passes: dict[str, type[AnyPass]] = {kind.name: kind for kind in all_passes()}

    def follow(
        self, child: subprocess.Popen[bytes], folder: RunFolder, report: ChildReport
    ) -> None:
        """Return when the child is gone, by itself or with help, or is only on its way out."""
        try:
            self._follow(child, folder, report)
        finally:
            # Whatever went wrong here (a second Ctrl-C, a terminal that closes while we print
            # to it), nobody else would end the child.
            if self._leaving is not child and child.poll() is None:
                self._end(child, report)

    def _follow(
        self, child: subprocess.Popen[bytes], folder: RunFolder, report: ChildReport
    ) -> None:
        kill_at: float | None = None
        passed_on = False
        not_interrupted: list[int] = []
        quiet_since = time.monotonic()
        self._said_what_is_awaited = False
        while True:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    report.exit_code = child.wait(timeout=_POLL_S)
                if self._read_events(folder, report):
                    quiet_since = time.monotonic()
                if self.signals.caught is not None:
                    report.signal = self.signals.caught
                if report.exit_code is not None:
                    _send(signal.SIGTERM, not_interrupted)
                    return
                if report.done and report.ended and not self._full:
                    # With CUDA the end of the process takes a while; the results can be
                    # analyzed in the meantime.
                    self._leaving = child
                    return
                now = time.monotonic()
                if self.signals.caught is not None and not passed_on:
                    passed_on = True
                    not_interrupted = _interrupt(child)
                    kill_at = now + _GRACE_INTERRUPT_S
                if now - quiet_since > _QUIET_S:
                    self._say_what_is_awaited(report)
                if kill_at is None and report.done and not self._full:
                    kill_at = now + _GRACE_DONE_S
                if self._deadline is not None and now > self._deadline:
                    report.timed_out = not report.done
                    kill_at = now
                if report.pass_deadline is not None and now > report.pass_deadline:
                    if folder.write_error() is not None:  # it could not report the pass's end
                        report.pass_deadline = None
                        continue
                    report.hung_in = report.current_pass
                    kill_at = now
                if kill_at is not None and now >= kill_at:
                    if report.done:
                        text = "the script did not end by itself and was stopped"
                        report.notes.append(text)
                        self._on_progress(ProgressEvent("note", text=text))
                    self._end(child, report)
                    self._read_events(folder, report)
                    return
            except KeyboardInterrupt:
                if report.interrupted:
                    self._end(child, report)
                    return
                report.signal = signal.SIGINT
                kill_at = time.monotonic() + _GRACE_INTERRUPT_S

    def settle(self) -> None:
        """Wait until the last child is gone."""
        child, self._leaving = self._leaving, None
        if child is None:
            return
        try:
            child.wait(timeout=_GRACE_EXIT_S)
        except subprocess.TimeoutExpired:
            self._end(child, ChildReport())

    def _end(self, child: subprocess.Popen[bytes], report: ChildReport) -> None:
        """SIGTERM, then SIGKILL; processes that the child had started go with it."""
        report.killed = True
        below = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        try:
            report.exit_code = child.wait(timeout=_GRACE_TERM_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            report.exit_code = child.wait()
        _send(signal.SIGKILL, below)

    def _read_events(self, folder: RunFolder, report: ChildReport) -> bool:
        events = folder.events()
        for event in events:
            report.on_event(event)
            progress = self._progress_of(event)
            if progress is not None:
                self._on_progress(progress)
        return bool(events)

    def _progress_of(self, event: Event) -> ProgressEvent | None:
        """What a person is shown of an event; None for one that is only for us."""
        match event:
            case PassStarted():
                label = self._label(event.name)
                return ProgressEvent("pass_start", event.name, label, total=event.steps)
            case PassProgress():
                label = self._label(event.name)
                return ProgressEvent("pass_progress", event.name, label, event.done, event.steps)
            case PassEnded():
                text = f"{event.seconds:.1f} s"
            case PassFailed():
                text = f"failed: {reason_text(event.reason)}"
            case PassSkipped():
                if self._passes[event.name].part_of is not None:
                    return None  # nobody asked for it
                text = f"skipped: {reason_text(event.reason)}"
            case Note():
                return ProgressEvent("note", text=event.text)
            case _:
                return None
        return ProgressEvent("pass_end", event.name, self._label(event.name), text=text)

    def _label(self, name: str) -> str:
        return "finding the step" if name == WARMUP else self._passes[name].label

    def _say_what_is_awaited(self, report: ChildReport) -> None:
        if self._said_what_is_awaited:
            return
        self._said_what_is_awaited = True
        if report.done:
            text = "everything is measured; waiting for the script to end"
        elif report.current_pass == WARMUP or not report.saw_torch:
            text = (
                f"no step for {_QUIET_S:.0f} s; still waiting for the script to reach one "
                "(Ctrl-C or --timeout ends it)"
            )
        else:
            return
        self._on_progress(ProgressEvent("note", text=text))


def _interrupt(child: subprocess.Popen[bytes]) -> list[int]:
    """Do what a terminal does at Ctrl-C: a child that ends this way keeps what it measured.

    Returns the processes below it that ignore this signal; they have to end after the child.
    """
    below, number = descendants(child.pid), interrupt_signal()
    _send(number, [child.pid])
    if number != signal.SIGINT:
        return below
    _send(signal.SIGINT, below)
    return []


def _send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, from /proc; empty where there is none."""
    parents: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    below = [pid]
    while below:
        children = parents.get(below.pop(), [])
        found += children
        below += children
    return found
