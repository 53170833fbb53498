"""Follows one child process from start to end: news, time limits, interrupts, and its going."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from launchscope.runner.child.passes import SCOPE
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.protocol.folder import ResultFolder
from launchscope.runner.protocol.signals import EndSignals, asking_signal

_POLL_S = 0.02
# How long a child may take to end by itself: once everything is measured (it may be saving
# a checkpoint), when only the process has to go, after an interrupt, and after SIGTERM.
_GRACE_DONE_S, _GRACE_EXIT_S, _GRACE_INTERRUPT_S, _GRACE_TERM_S = 120.0, 10.0, 5.0, 3.0
# After this long without news a person is told what is being waited for.
_QUIET_S = 30.0


@dataclass(frozen=True)
class Event:
    """Something a person waiting may want to know."""

    kind: Literal["run", "pass_start", "pass_progress", "pass_end", "note"]
    name: str
    done: int = 0
    total: int = 0
    text: str = ""


class ChildWatch:
    """Watches child after child; `timeout_s` bounds them together."""

    def __init__(self, listen: Callable[[Event], None], timeout_s: float | None, full: bool):
        self.signals = EndSignals()
        self._listen = listen
        self._full = full
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._leaving: subprocess.Popen[bytes] | None = None
        self._told = False

    def follow(
        self, child: subprocess.Popen[bytes], folder: ResultFolder, report: ChildReport
    ) -> None:
        """Return when the child is gone, by itself or with help, or is only on its way out."""
        try:
            self._follow(child, folder, report)
        finally:
            # Whatever went wrong here, a second Ctrl-C or a terminal that is closed while we
            # print to it, nobody would be left to end the child.
            if self._leaving is not child and child.poll() is None:
                self._end(child, report)

    def _follow(
        self, child: subprocess.Popen[bytes], folder: ResultFolder, report: ChildReport
    ) -> None:
        kill_at: float | None = None
        passed_on = False
        below: list[int] = []
        quiet_since = time.monotonic()
        self._told = False
        while True:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    report.exit_code = child.wait(timeout=_POLL_S)
                if self._hear(folder, report):
                    quiet_since = time.monotonic()
                if self.signals.caught is not None:
                    report.signal = self.signals.caught
                if report.exit_code is not None:
                    _terminate(below)
                    return
                if report.done and report.ended and not self._full:
                    # With CUDA the process's own end takes its time: meanwhile the results
                    # can be looked at.
                    self._leaving = child
                    return
                now = time.monotonic()
                if self.signals.caught is not None and not passed_on:
                    passed_on = True
                    below = _press_ctrl_c(child)
                    kill_at = now + _GRACE_INTERRUPT_S
                if now - quiet_since > _QUIET_S:
                    self._say_what_is_awaited(report)
                if kill_at is None and report.done and not self._full:
                    kill_at = now + _GRACE_DONE_S
                if self._deadline is not None and now > self._deadline:
                    report.timed_out = not report.done
                    kill_at = now
                if report.pass_deadline is not None and now > report.pass_deadline:
                    if folder.unwritable() is not None:  # its end could not be told
                        report.pass_deadline = None
                        continue
                    report.hung_in = report.current_pass
                    kill_at = now
                if kill_at is not None and now >= kill_at:
                    if report.done:
                        self._note(report, "the script did not end by itself and was stopped")
                    self._end(child, report)
                    self._hear(folder, report)
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
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _hear(self, folder: ResultFolder, report: ChildReport) -> bool:
        lines = folder.told()
        for line in lines:
            report.hear(line)
            event = _event_of(line)
            if event is not None:
                self._listen(event)
        return bool(lines)

    def _note(self, report: ChildReport, text: str) -> None:
        """Tell a person now, and the reader of the report later."""
        report.told.append(text)
        self._listen(Event("note", "", text=text))

    def _say_what_is_awaited(self, report: ChildReport) -> None:
        if self._told:
            return
        self._told = True
        if report.done:
            text = "everything is measured; waiting for the script to end by itself"
        elif report.current_pass == "warmup" or not report.saw_torch:
            text = (
                f"no step seen for {_QUIET_S:.0f} s; still waiting for the script to reach one "
                "(Ctrl-C or --timeout ends it)"
            )
        else:
            return
        self._listen(Event("note", "", text=text))


def _press_ctrl_c(child: subprocess.Popen[bytes]) -> list[int]:
    """What a terminal does for us there: a child that ends so leaves what it has measured.

    Returns the processes below it that are deaf to this: they are to end after the child.
    """
    below, asking = descendants(child.pid), asking_signal()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child.pid, asking)
    if asking != signal.SIGINT:
        return below
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGINT)
    return []


def _terminate(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)


def _event_of(line: dict[str, Any]) -> Event | None:
    """What a person is told of a status line; None for what is only for us."""
    kind, name = line["kind"], line.get("name", "")
    if kind == "pass_start":
        return Event("pass_start", name, total=line.get("total", 0))
    if kind == "pass_progress":
        return Event("pass_progress", name, line["done"], line["total"])
    if kind == "pass_end" and "skipped" in line and name.startswith(SCOPE):
        return None  # nothing that was asked for
    if kind == "pass_end":
        if "failed" in line:
            return Event("pass_end", name, text=f"failed: {line['failed']}")
        if "skipped" in line:
            return Event("pass_end", name, text=f"skipped: {line['skipped']}")
        return Event("pass_end", name, text=f"{line.get('seconds', 0.0):.1f} s")
    if kind == "note":
        return Event("note", "", text=line["text"])
    return None


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
