"""Whoever gets a signal: the script ends in its own way, and what was measured is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.forkserver import usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP, Batch

pytestmark = pytest.mark.child

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
TRAINS = (
    SMALL_STEP
    + """
open("pid", "w").write(str(os.getpid()))
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
    strike: Callable[[int], None],
    at: str = "30",
) -> Ended:
    """How a command ends that runs `source`; `strike` gets its pid once the script is at step
    `at`."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    with subprocess.Popen(
        [sys.executable, "-m", "launchscope", *PROFILE, "script.py", at],
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


def ctrl_c(launchscope: int) -> None:
    """As a terminal does, for every process of its foreground job."""
    os.killpg(launchscope, INT)


def twice(launchscope: int) -> None:
    os.kill(launchscope, INT)
    time.sleep(0.6)
    os.kill(launchscope, INT)


CASES: dict[str, Callable[[Path], Ended]] = {
    "int": partial(signalled, source=TRAINS, strike=alone(INT)),
    "int_by_ctrl_c": partial(signalled, source=TRAINS, strike=ctrl_c),
    "term": partial(signalled, source=TRAINS, strike=alone(TERM)),
    "hup": partial(signalled, source=TRAINS, strike=alone(HUP)),
    "term_handled": partial(signalled, source=HANDLES, strike=alone(TERM)),
    "term_in_warmup": partial(signalled, source=TRAINS, strike=alone(TERM), at="1"),
    "int_deaf": partial(signalled, source=DEAF, strike=twice),
    "killed": partial(signalled, source=DEAF, strike=alone(signal.SIGKILL)),
}
STOPPED = [name for name in CASES if name not in ("int_deaf", "killed")]
MEASURED = [name for name in STOPPED if "in_" not in name]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("signals")
    running = Batch({name: partial(case, folder / name) for name, case in CASES.items()})
    yield running
    running.close()


@pytest.mark.parametrize("name", STOPPED)
def test_finally_runs_once_and_to_its_end_and_nothing_is_left(batch: Batch, name: str) -> None:
    ended = batch[name]
    assert ended.told == ("term " if name == "term_handled" else "") + "begin end ", ended.err
    assert ended.left == ()
    number = {"int": INT, "ter": TERM, "hup": HUP}[name[:3]]
    assert ended.code == 128 + number, ended.err
    assert name.startswith("int") or "Traceback" not in ended.err
    anything = "" if name in MEASURED else " before anything was measured"
    assert f"error: interrupted{anything}" in ended.err


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_measured_is_reported(batch: Batch, name: str) -> None:
    ended = batch[name]
    assert "device operations per step" in ended.out
    assert "error: interrupted; this is what was measured" in ended.err


def test_a_second_ctrl_c_ends_a_script_that_does_not_end(batch: Batch) -> None:
    ended = batch["int_deaf"]
    assert (ended.code, ended.told, ended.left) == (130, "", ()), ended.err


def test_a_script_ends_with_a_launchscope_that_is_killed(batch: Batch) -> None:
    ended = batch["killed"]
    assert ended.told == ""
    assert not [name for name in ended.left if "launchscope-" not in name]
