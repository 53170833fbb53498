"""A small process beside the script, in the process group of launchscope.

It gets what a terminal, a shell or `timeout` sends to the whole group, and so knows which signals
the script has got already. And it ends the script and all its processes if launchscope is killed.
It runs this file as a program, which imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

_END = b"\0"  # of an answer, which is the signals since the last one
_SPREAD_S = 0.03  # until a signal to a group has reached all of it
_ANSWER_S = 3.0
GRACE_TERM_S = 3.0  # for a process to end after SIGTERM


class Sentinel:
    """The process; `numbers` are the signals it listens for."""

    def __init__(self, numbers: Collection[int]):
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__), *map(str, numbers)]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # until it can handle them
        try:
            self._process = subprocess.Popen(
                command,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout.fileno()
        self._heard: set[int] = set()

    def guard(self, pid: int) -> None:
        """From now on end this process with launchscope; 0: none."""
        self._say(str(pid))

    def group_got(self, number: int) -> bool:
        """Whether a signal that has come to launchscope came to all of its group."""
        time.sleep(_SPREAD_S)
        self._say("?")
        answer, give_up = b"", time.monotonic() + _ANSWER_S
        while _END not in answer:
            if not select.select([self._from], [], [], max(0.0, give_up - time.monotonic()))[0]:
                break
            more = os.read(self._from, 64)
            if not more:
                break
            answer += more
        self._heard.update(answer)
        got = number in self._heard
        self._heard.discard(number)
        return got

    def close(self) -> None:
        """End it. The script is none of its business anymore."""
        self._process.kill()
        with self._process:
            pass

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # somebody has killed it
            self._to.write(line.encode() + b"\n")


def end_process(pid: int) -> None:
    """SIGTERM, then SIGKILL, for a process that is not our child; those below it go with it."""
    below = descendants(pid)
    send(signal.SIGTERM, [pid])
    give_up = time.monotonic() + GRACE_TERM_S
    with contextlib.suppress(OSError):  # it is gone
        while time.monotonic() < give_up:
            os.kill(pid, 0)
            time.sleep(0.02)
    send(signal.SIGKILL, [pid, *below])


def send(number: int, pids: Collection[int]) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, from /proc; empty where there is none."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            parents.setdefault(int(after_name.split()[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    below = [pid]
    while below:
        children = parents.get(below.pop(), [])
        found += children
        below += children
    return found


def main(numbers: Collection[int]) -> None:
    os.set_blocking(1, False)
    signal.set_wakeup_fd(1)  # every signal is a byte in the answer
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    guarded = 0
    for line in sys.stdin:
        if line == "?\n":
            os.write(1, _END)
        else:
            guarded = int(line)
    if guarded:  # launchscope is gone, and did not close us
        end_process(guarded)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]])
