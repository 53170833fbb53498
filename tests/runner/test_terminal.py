"""In a terminal with a shell: Ctrl-C, Ctrl-Z, fg, a background job."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.children import ENVIRONMENT
from tests.runner.test_signals import TRAINS, await_file

pytestmark = [pytest.mark.real_start, pytest.mark.child]

_SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
"""
ASKS = "name = input('who? ')\nprint('hello', name)\n" + TRAINS


class Terminal:
    """An interactive bash on a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, ""
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            cwd=folder,
            env={**ENVIRONMENT, "PS1": "$ ", "TERM": "dumb", "PYTHON": sys.executable},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.await_text(r"\$ $")
        self.attributes = termios.tcgetattr(self._ours)

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self._ours, text.encode())

    def profile(self, *words: str) -> None:
        self.type(f"$PYTHON -m launchscope profile --inspect 1500 {' '.join(words)}\n")

    def await_text(self, pattern: str) -> str:
        """What was shown since the last typing, once the pattern is in it."""
        give_up = time.monotonic() + 60
        while not re.search(pattern, self.seen):
            assert time.monotonic() < give_up, self.seen
            if select.select([self._ours], [], [], 0.1)[0]:
                self.seen += os.read(self._ours, 4096).decode(errors="replace").replace("\r", "")
        return self.seen

    def answer(self, command: str) -> str:
        self.type(f"{command}; echo '='\n")
        return self.await_text(r"\n=\n\$ ").split("\n", 1)[1].rpartition("\n=")[0]

    def restored(self) -> bool:
        """Whether the shell has its terminal back as it was."""
        foreground = os.tcgetpgrp(self._ours) == self._process.pid
        return foreground and termios.tcgetattr(self._ours) == self.attributes

    def close(self) -> None:
        os.close(self._ours)
        self._process.kill()
        self._process.wait()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "script.py").write_text(ASKS)
    made = Terminal(tmp_path)
    yield made
    made.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def await_states(stopped: bool, *pids: int) -> None:
    """A process on a busy machine stops some time after bash has said so of its parent."""
    give_up = time.monotonic() + 30
    while any((state(pid) == "T") != stopped for pid in pids):
        assert time.monotonic() < give_up, [state(pid) for pid in pids]
        time.sleep(0.02)


def test_a_job_of_a_shell_is_one_in_its_terminal(terminal: Terminal) -> None:
    """One run, for its processes take seconds to start."""
    # In the background it is stopped when it asks.
    terminal.profile("script.py", "30", "&")
    terminal.type("\n")
    for _ in range(100):  # bash reports a stopped job before its next prompt
        if "Stopped" in terminal.answer("jobs"):
            break
        time.sleep(0.2)
    terminal.type("fg\n")
    terminal.await_text(r"fg\n")
    terminal.type("you\n")
    terminal.await_text("hello you")
    await_file(terminal.folder / "now")
    script = int((terminal.folder / "pid").read_text())
    # Ctrl-Z stops both processes, and fg continues both.
    terminal.type("\x1a")
    terminal.await_text("Stopped")
    parent = int(Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[1])
    await_states(True, script, parent)
    terminal.type("fg\n")
    await_states(False, script, parent)
    # Ctrl-C reaches the script once.
    terminal.type("\x03")
    shown = terminal.await_text(r"error: interrupted; this is what was measured.*\n(.*\n)*?\$ $")
    assert "device operations per step" in shown
    assert (terminal.folder / "told").read_text() == "begin end "
    assert terminal.restored()
    assert terminal.answer("echo $?") in ("0", "130")
    assert not Path(f"/proc/{script}").exists()
