"""A signal that comes while no script runs ends a command in good order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchscope.errors import MeasureError
from launchscope.workflows.signals import ends_on_signals
from tests.forkserver import usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP, python

TRAIN = f"import signal\n{SMALL_STEP}"
LOOP = "for i in range(100): step()\n"
# Runs launchscope, which gets the signal when it calls a function of its own for the nth time.
STRIKES = """
import importlib, os, sys
number, nth, where = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
module, _, name = where.rpartition(".")
owner = importlib.import_module(module)
own = getattr(owner, name)
calls = 0

def struck(*args, **kwargs):
    global calls
    calls += 1
    if calls == nth:
        os.kill(os.getpid(), number)
    return own(*args, **kwargs)

setattr(owner, name, struck)
from launchscope.cli import main
sys.exit(main(sys.argv[4:]))
"""


@dataclass(frozen=True)
class Seen:
    """How a command ended, and the temporary folders that it left."""

    code: int
    out: str
    err: str
    folders: list[str]


def struck(folder: Path, number: int, where: str, *command: str, nth: int = 1, source: str) -> Seen:
    """How a command ends that gets a signal when it calls the function `where`."""
    temporary = folder / "tmp"
    temporary.mkdir()
    (folder / "script.py").write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, "-c", STRIKES, str(int(number)), str(nth), where, *command],
        cwd=folder,
        env={**ENVIRONMENT, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=usual_signals,
    )
    assert "launchscope/cli" not in done.stderr, done.stderr
    left = sorted(path.name for path in temporary.glob("launchscope-*"))
    return Seen(done.returncode, done.stdout, done.stderr, left)


@pytest.mark.child
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_analysis_leaves_no_folder(tmp_path: Path, number: int) -> None:
    command = ("profile", "script.py")
    seen = struck(
        tmp_path, number, "launchscope.analysis.build_profile", *command, source=TRAIN + LOOP
    )
    assert (seen.code, seen.folders, seen.out) == (128 + number, [], ""), seen.err
    assert seen.err.endswith("error: interrupted\n")


@pytest.mark.child
def test_keep_trace_keeps_the_folder(tmp_path: Path) -> None:
    command = ("profile", "--keep-trace", "script.py")
    where = "launchscope.analysis.build_profile"
    seen = struck(tmp_path, signal.SIGTERM, where, *command, source=TRAIN + LOOP)
    assert seen.code == 143, seen.err
    assert (tmp_path / "script.launchscope" / "recording.json").exists()


@pytest.mark.child
def test_compare_reports_the_points_before_the_signal(tmp_path: Path) -> None:
    command = ("compare", "--batch-sizes", "1,2,3", "script.py", "{batch_size}")
    where = "launchscope.analysis.build_profile"
    seen = struck(tmp_path, signal.SIGTERM, where, *command, nth=2, source=TRAIN + LOOP)
    assert (seen.code, seen.folders) == (143, []), seen.err
    assert seen.err.endswith("error: interrupted; this is what was measured until then\n")
    assert "Interrupted at point 2 of 3: batch size 2" in seen.out


@pytest.mark.child
def test_a_signal_after_the_child_ended_is_not_lost(tmp_path: Path) -> None:
    where = "launchscope.runner.parent.collect.describe_head"
    seen = struck(tmp_path, signal.SIGTERM, where, "profile", "script.py", source=TRAIN + LOOP)
    assert (seen.code, seen.folders) == (143, []), seen.err
    assert "device operations per step" in seen.out
    assert "error: interrupted" in seen.err


@pytest.mark.child
def test_a_second_sigterm_does_not_cut_the_report_short(tmp_path: Path) -> None:
    tells = "for i in range(2000):\n    step(); time.sleep(0.01)\n"
    tells += "    if i == 30: os.kill(os.getppid(), signal.SIGTERM)\n"
    where = "launchscope.analysis.build_profile"
    command = ("profile", "--inspect", "1500", "script.py")
    seen = struck(tmp_path, signal.SIGTERM, where, *command, source=TRAIN + tells)
    assert (seen.code, seen.folders) == (143, []), seen.err
    assert "device operations per step" in seen.out
    assert "error: interrupted; this is what was measured" in seen.err


@pytest.mark.child
def test_without_a_folder_for_temporary_files_there_is_one_sentence(tmp_path: Path) -> None:
    broken = (
        "import sys, tempfile\n"
        "def mkdtemp(*_, **named): raise FileNotFoundError(2, 'No usable temporary folder found')\n"
        "tempfile.mkdtemp = mkdtemp\n"
        "from launchscope.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "script.py").write_text(TRAIN + LOOP)
    result = python(tmp_path, "-c", broken, "profile", "script.py", code=3)
    assert re.fullmatch(
        r"error: cannot make a folder for the results: .*\nhint: set TMPDIR.*\n", result.err
    )


@pytest.fixture
def usual_sigterm() -> Iterator[None]:
    entry = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, entry)


def test_only_the_first_signal_raises(usual_sigterm: None) -> None:
    reached = []

    def command() -> None:
        with ends_on_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                reached.append("tidied up")

    with pytest.raises(MeasureError, match="interrupted"):
        command()
    assert reached == ["tidied up"]
