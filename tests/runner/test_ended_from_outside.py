"""SIGTERM and SIGHUP end a run as Ctrl-C does, and leave no process and no folder behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchscope.runner.protocol.signals import EndSignals
from tests.forkserver import background_signals, usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP

pytestmark = pytest.mark.child

real_start = pytest.mark.real_start

WAITS = """
import os, time
open("pid", "w").write(str(os.getpid()))
open("now", "w").close()
while True: time.sleep(0.05)
"""
TRAINS = """
import os, time, torch
open("pid", "w").write(str(os.getpid()))
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
step = 0
while True:
    step += 1
    if step == 30: open("now", "w").close()
    if step > 30: time.sleep(0.05)
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
"""
DEAF = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *a: open("heard", "w").close())
"""


@dataclass(frozen=True)
class TerminationSignal:
    """How a command ended to which a signal was sent, and what it left."""

    code: int
    out: str
    err: str
    child_lives: bool
    folders: list[str]


def ended(
    folder: Path,
    source: str,
    number: int,
    command: Sequence[str] = ("profile",),
    prepare: Callable[[], None] = usual_signals,
    then: int | None = None,
    arguments: Sequence[str] = (),
    start: Sequence[str] = ("-m", "launchscope"),
) -> TerminationSignal:
    """Send `number` to launchscope alone, and `then`, once the script has made the file `now`."""
    temporary = folder / "tmp"
    temporary.mkdir()
    (folder / "script.py").write_text(textwrap.dedent(source))
    with subprocess.Popen(
        [sys.executable, *start, *command, "script.py", *arguments],
        cwd=folder,
        env={**ENVIRONMENT, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
    ) as process:
        give_up = time.monotonic() + 60
        while not (folder / "now").exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        process.send_signal(number)
        if then is not None:
            time.sleep(0.3)
            process.send_signal(then)
        out, err = process.communicate(timeout=60)
    child = int((folder / "pid").read_text())
    give_up = time.monotonic() + 5
    while lives(child) and time.monotonic() < give_up:
        time.sleep(0.05)
    left = lives(child)
    if left:
        os.kill(child, signal.SIGKILL)
    found = sorted(path.name for path in temporary.glob("launchscope-*"))
    return TerminationSignal(process.returncode, out, err, left, found)


def lives(pid: int) -> bool:
    """Whether the process is there and more than a zombie that nobody waits for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@real_start
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_child_and_removes_its_folder(tmp_path: Path, number: int) -> None:
    result = ended(tmp_path, WAITS, number)
    assert result.code == 128 + number, result.err
    assert "error: interrupted before anything was measured" in result.err
    assert (result.child_lives, result.folders, result.out) == (False, [], "")


def test_sigterm_gives_the_report_of_what_was_measured(tmp_path: Path) -> None:
    result = ended(tmp_path, TRAINS, signal.SIGTERM, ("profile", "--inspect", "1500"))
    assert result.code == 143, result.err
    assert "error: interrupted; this is what was measured" in result.err
    assert "device operations per step" in result.out
    assert (result.child_lives, result.folders) == (False, [])


@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX"), reason="no signal to ask by")
def test_in_the_background_sigterm_gives_the_report_of_what_was_measured(tmp_path: Path) -> None:
    command = ("profile", "--inspect", "1500")
    result = ended(tmp_path, TRAINS, signal.SIGTERM, command, background_signals)
    assert result.code == 143, result.err
    assert "error: interrupted; this is what was measured" in result.err
    assert "device operations per step" in result.out
    assert (result.child_lives, result.folders) == (False, [])


@real_start
@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX"), reason="no signal to ask by")
def test_in_the_background_processes_of_the_script_end_with_it(tmp_path: Path) -> None:
    starts = (
        "import subprocess, sys\nother = subprocess.Popen([sys.executable, '-c', 'import time\\n"
    )
    starts += "time.sleep(100)'])\nopen('other', 'w').write(str(other.pid))\n"
    result = ended(tmp_path, starts + WAITS, signal.SIGTERM, prepare=background_signals)
    assert (result.code, result.child_lives, result.folders) == (143, False, []), result.err
    other = int((tmp_path / "other").read_text())
    give_up = time.monotonic() + 5
    while lives(other) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not lives(other)


@real_start
def test_in_the_background_a_script_goes_on_ignoring_ctrl_c(tmp_path: Path) -> None:
    asks = """
    import os, signal, time
    open("pid", "w").write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGINT)
    print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, flush=True)
    open("now", "w").close()
    time.sleep(60)
    """
    result = ended(tmp_path, asks, signal.SIGTERM, prepare=background_signals)
    assert (result.code, result.out) == (143, "True\n"), result.err


@real_start
def test_a_second_sigterm_does_not_interrupt_the_ending(tmp_path: Path) -> None:
    deaf_for_a_while = DEAF + WAITS.replace("while True", "while not os.path.exists('heard')")
    source = deaf_for_a_while + "time.sleep(1)\nopen('saved', 'w').close()\n"
    result = ended(tmp_path, source, signal.SIGTERM, then=signal.SIGTERM)
    assert result.code == 143, result.err
    assert (tmp_path / "saved").exists()
    assert (result.child_lives, result.folders) == (False, [])


@real_start
def test_a_script_that_takes_its_time_to_end_is_not_killed_and_what_was_measured_is_kept(
    tmp_path: Path,
) -> None:
    impatient = """
    from launchscope.runner.parent import child_watch
    from launchscope.cli import main
    child_watch._GRACE_BATCH_S = 0.5
    raise SystemExit(main())
    """
    trains = """
    open("pid", "w").write(str(os.getpid()))
    i, give_up = 0, time.monotonic() + 30
    while not os.path.exists("script.launchscope/recording.json"):
        assert time.monotonic() < give_up
        step()
        i += 1
        if i == 30: open("now", "w").close()
        if i > 30: time.sleep(0.01)
    shutil.copytree("script.launchscope", "seen")
    """
    source = "import shutil\n" + DEAF + SMALL_STEP + textwrap.dedent(trains)
    command, start = ("profile", "--inspect", "20", "--full"), ("-c", textwrap.dedent(impatient))
    result = ended(tmp_path, source, signal.SIGTERM, command, start=start)
    assert (result.code, result.child_lives, result.folders) == (143, False, [])
    kept = f"what was measured is kept in {tmp_path / 'script.launchscope'}"
    assert kept in " ".join(result.err.split())
    report = [sys.executable, "-m", "launchscope", "report", "-f", "json", str(tmp_path / "seen")]
    assert subprocess.run(report, capture_output=True).returncode == 0


@real_start
@pytest.mark.parametrize(
    "command", [("check", "--limit", "launches_per_step=9"), ("compare", "--param", "x=1,2")]
)
def test_check_and_compare_end_on_sigterm_too(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = ended(tmp_path, WAITS, signal.SIGTERM, command, arguments=("{x}",))
    assert result.code == 143, result.err
    assert "error: interrupted" in result.err
    assert (result.child_lives, result.folders) == (False, [])


@real_start
def test_a_hangup_that_was_ignored_on_entry_stays_ignored(tmp_path: Path) -> None:
    def nohup() -> None:
        usual_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    source = WAITS.replace("while True: time.sleep(0.05)", "time.sleep(1)\nprint('went on')")
    result = ended(tmp_path, source, signal.SIGHUP, prepare=nohup)
    assert (result.code, result.folders) == (3, []), result.err
    assert "went on" in result.out


@real_start
@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_the_child_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    assert not ended(tmp_path, WAITS, signal.SIGKILL).child_lives


def test_earlier_signal_handlers_are_restored() -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    entry = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    try:
        with EndSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.caught == signal.SIGHUP
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_DFL] * 2
    finally:
        for number, handler in zip(numbers, entry, strict=True):
            signal.signal(number, handler)
