"""Whoever gets a signal: the script ends in its own way, and what was measured is reported."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forkserver import usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP

pytestmark = pytest.mark.child

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
TRAINS = (
    SMALL_STEP
    + """
def tell(text):
    with open("told", "a") as file: file.write(text + " ")
at = int(sys.argv[1])
try:
    for i in range(2000):
        step()
        if i == at: open("now", "w").close()
        if i >= at: time.sleep(0.05)
finally:
    tell("begin")
    time.sleep(0.5)
    tell("end")
"""
)
HANDLES = 'import signal\nsignal.signal(signal.SIGTERM, lambda *a: tell("term") or sys.exit(7))\n'
HANDLES = TRAINS.replace("try:", HANDLES + "try:", 1)
DEAF = "import signal\nfor n in (2, 15): signal.signal(n, lambda *a: None)\n" + TRAINS
PROFILE = ("profile", "--inspect", "1500")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    told: str
    left: tuple[str, ...]  # processes and folders


def signalled(
    folder: Path,
    source: str,
    strike: Callable[[int], object],
    at: int = 30,
    stdin: int = subprocess.DEVNULL,
) -> Ended:
    """How a command ends that runs `source`; `strike` gets its pid once the script is at step
    `at`."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    with subprocess.Popen(
        [sys.executable, "-m", "launchscope", *PROFILE, "script.py", str(at)],
        cwd=folder,
        env={**ENVIRONMENT, "TMPDIR": str(folder / "tmp")},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=usual_signals if stdin == subprocess.DEVNULL else on_a_terminal,
    ) as process:
        await_file(folder / "now")
        strike(process.pid)
        out, err = process.communicate(timeout=60)
    left = processes_in(process.pid)
    left += [path.name for path in (folder / "tmp").glob("launchscope-*")]
    told = (folder / "told").read_text() if (folder / "told").exists() else ""
    return Ended(process.returncode, out, err, told, tuple(left))


def await_file(path: Path) -> None:
    give_up = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up, f"{path.name} did not come"
        time.sleep(0.02)


def processes_in(session: int) -> list[str]:
    """The processes of a session that do not end by themselves within a few seconds."""
    give_up = time.monotonic() + 6
    while True:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = stat.read_text(errors="replace").rpartition(")")
            except OSError:
                continue
            words = rest.split()
            if int(words[3]) == session and words[0] != "Z":
                found.append(name)
        if not found or time.monotonic() > give_up:
            return found
        time.sleep(0.1)


def alone(number: int) -> Callable[[int], None]:
    return lambda launchscope: os.kill(launchscope, number)


def on_a_terminal() -> None:
    """For `preexec_fn`: standard input becomes the terminal of the process."""
    usual_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def twice(launchscope: int) -> None:
    os.kill(launchscope, INT)
    time.sleep(0.6)
    os.kill(launchscope, INT)


@pytest.mark.parametrize(
    ("source", "strike", "at", "number"),
    [
        (TRAINS, alone(INT), 30, INT),
        (TRAINS, alone(TERM), 30, TERM),
        (TRAINS, alone(HUP), 30, HUP),
        (HANDLES, alone(TERM), 30, TERM),
        (TRAINS, alone(TERM), 1, TERM),
    ],
    ids=["int", "term", "hup", "term that is handled", "term in the warm-up"],
)
def test_finally_runs_once_and_to_its_end_and_what_was_measured_is_reported(
    tmp_path: Path, source: str, strike: Callable[[int], None], at: int, number: int
) -> None:
    ended = signalled(tmp_path, source, strike, at)
    assert ended.told == ("term " if source == HANDLES else "") + "begin end ", ended.err
    assert ended.left == ()
    assert ended.code == 128 + number, ended.err
    assert number == INT or "Traceback" not in ended.err
    measured = at > 10
    assert ("device operations per step" in ended.out) is measured
    what = "; this is what was measured" if measured else " before anything was measured"
    assert f"error: interrupted{what}" in ended.err


def test_ctrl_c_in_a_terminal_reaches_the_script_once(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    ended = signalled(tmp_path, TRAINS, lambda _: os.write(ours, b"\x03"), stdin=theirs)
    os.close(theirs)
    os.close(ours)
    assert (ended.code, ended.told, ended.left) == (130, "begin end ", ()), ended.err
    assert "device operations per step" in ended.out


def test_a_second_ctrl_c_ends_a_script_that_does_not_end(tmp_path: Path) -> None:
    ended = signalled(tmp_path, DEAF, twice)
    assert (ended.code, ended.told, ended.left) == (130, "", ()), ended.err


def test_a_script_ends_with_a_launchscope_that_is_killed(tmp_path: Path) -> None:
    ended = signalled(tmp_path, DEAF, alone(signal.SIGKILL))
    assert ended.told == ""
    assert not [name for name in ended.left if "launchscope-" not in name]
