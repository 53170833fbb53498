"""Whoever gets a signal: the script ends once, in its own way, and the report is given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.forkserver import usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP, Batch

pytestmark = pytest.mark.child

TRAINS = (
    SMALL_STEP
    + """
open("pid", "w").write(str(os.getpid()))
def tell(text):
    with open("told", "a") as file: file.write(text + " ")
try:
    for i in range(2000):
        step()
        if i == int(sys.argv[1]): open("now", "w").close()
        if i >= int(sys.argv[1]): time.sleep(0.05)
finally:
    tell("begin")
    time.sleep(1)
    tell("end")
"""
)
HANDLES = 'import signal\nsignal.signal(signal.SIGTERM, lambda *a: tell("term") or sys.exit(7))\n'
HANDLES = TRAINS.replace("try:", HANDLES + "try:", 1)
COUNTS = 'import signal\nsignal.signal(signal.SIGUSR1, lambda *a: tell("usr1"))\n'
COUNTS = TRAINS.replace("try:", COUNTS + "try:", 1)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    told: str
    left: tuple[str, ...]  # processes and folders


def signalled(folder: Path, source: str, strike: Callable[[int, int], None], at: int = 30) -> Ended:
    """How launchscope ends; `strike` gets its pid and that of the script."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    with subprocess.Popen(
        [sys.executable, "-m", "launchscope", "profile", "--inspect", "1500", "script.py", str(at)],
        cwd=folder,
        env={**ENVIRONMENT, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=usual_signals,
    ) as process:
        await_file(folder / "now")
        strike(process.pid, int((folder / "pid").read_text()))
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


def alone(number: int) -> Callable[[int, int], None]:
    return lambda launchscope, script: os.kill(launchscope, number)


def group(number: int) -> Callable[[int, int], None]:
    return lambda launchscope, script: os.killpg(launchscope, number)


def as_timeout(number: int) -> Callable[[int, int], None]:
    def strike(launchscope: int, script: int) -> None:
        os.kill(launchscope, number)
        os.killpg(launchscope, number)

    return strike


def int_twice(launchscope: int, script: int) -> None:
    os.kill(launchscope, signal.SIGINT)
    time.sleep(0.6)
    os.kill(launchscope, signal.SIGINT)


def usr1_then_int(launchscope: int, script: int) -> None:
    os.kill(launchscope, signal.SIGUSR1)
    time.sleep(0.6)
    os.kill(launchscope, signal.SIGINT)


INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
CASES: dict[str, tuple[str, Callable[[int, int], None], int]] = {
    "int_alone": (TRAINS, alone(INT), 30),
    "term_alone": (TRAINS, alone(TERM), 30),
    "hup_alone": (TRAINS, alone(HUP), 30),
    "int_group": (TRAINS, group(INT), 30),
    "int_timeout": (TRAINS, as_timeout(INT), 30),
    "int_script": (TRAINS, lambda launchscope, script: os.kill(script, INT), 30),
    "int_warmup": (TRAINS, alone(INT), 1),
    "handles_term": (HANDLES, alone(TERM), 30),
    "handles_term_group": (HANDLES, as_timeout(TERM), 30),
    "int_twice": (TRAINS, int_twice, 30),
    "usr1": (COUNTS, usr1_then_int, 30),
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("signals")
    running = Batch(
        {
            name: partial(signalled, folder / name, source, strike, at)
            for name, (source, strike, at) in CASES.items()
        }
    )
    yield running
    running.close()


@pytest.mark.parametrize("name", CASES)
def test_finally_runs_once_and_to_its_end_and_nothing_is_left(batch: Batch, name: str) -> None:
    ended = batch[name]
    before = {"usr1": "usr1 ", "handles_term": "term ", "handles_term_group": "term "}
    # As under python, a second Ctrl-C interrupts the `finally:`.
    after = "begin " if name == "int_twice" else "begin end "
    assert ended.told == before.get(name, "") + after, ended.err
    assert ended.left == ()


@pytest.mark.parametrize("name", CASES)
def test_what_was_measured_is_reported(batch: Batch, name: str) -> None:
    ended = batch[name]
    number = TERM if "term" in name else HUP if "hup" in name else INT
    assert ended.code == 128 + number, ended.err
    if name == "int_warmup":
        assert "interrupted before anything was measured" in ended.err
        return
    assert "device operations per step" in ended.out
    if name != "int_script":
        assert "error: interrupted; this is what was measured" in ended.err


def test_a_script_does_not_begin_before_somebody_would_end_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("open('began', 'w')")
    killed = """
    import os, signal, sys
    from launchscope.cli import main
    from launchscope.runner.parent.sentinel import Sentinel
    Sentinel.guard = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
    main(["profile", "script.py"])
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(killed)],
        cwd=tmp_path,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
        time.sleep(0.6)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "began").exists()


def test_signals_at_random_moments_leave_nothing_and_lose_nothing(tmp_path: Path) -> None:
    from tests.signal_campaign import campaign

    struck = campaign(tmp_path, 3, seed=18, longest_s=3.5)
    assert [one for one in struck if one.wrong] == []
