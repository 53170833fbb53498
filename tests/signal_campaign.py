"""Signals at random moments, to launchscope alone.

    python -m tests.signal_campaign [--runs 200] [--seed 1] [--output PATH]

Each run of a script gets one SIGINT, SIGTERM, SIGHUP or SIGKILL. Wrong are processes and folders
that are left, a `finally:` that was entered and did not run once and to its end, and a measurement
that was made and is not in the report. After SIGKILL only processes are, and folders that stay when
launchscope is started again.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import bench
from tests.forkserver import Popen, Server, install, usual_signals
from tests.runner.children import ENVIRONMENT, SMALL_STEP
from tests.runner.test_signals import processes_in

GOAL = "no orphan, no lost measurement, every `finally:` ran, no folder left"
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_AT_ONCE = 3
_LONGEST_S = 9.0  # the last moment, counted from the start
_ENOUGH = 16  # steps after which there is something to report
# What starting launchscope again does for the folders of those that were killed.
_STARTS = "from launchscope.workflows.temporary import TemporaryFolder; TemporaryFolder().remove()"
_TRAINS = """
def tell(text):
    with open("told", "a") as file: file.write(text + " ")
def made(count):
    with open("steps", "w") as file: file.write(str(count))
try:
    tell("entered")
    for count in range(250):
        step()
        made(count)
        time.sleep(0.01)
finally:
    tell("begin")
    time.sleep(0.3)
    tell("end")
"""
_LOADS = _TRAINS.replace(
    "for count in range(250):",
    "for count, _ in enumerate(torch.utils.data.DataLoader(range(250), num_workers=2)):",
)
_HANDLES = "import signal\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(3))\n" + _TRAINS
# A process that the script ends; whoever ends the script ends it too.
_STARTS_ONE = _TRAINS.replace(
    "try:", "import subprocess\nother = subprocess.Popen(['sleep', '100'])\ntry:", 1
).replace('tell("end")', 'other.kill()\n    other.wait()\n    tell("end")')
SCRIPTS = {"trains": _TRAINS, "loads": _LOADS, "handles": _HANDLES, "starts_one": _STARTS_ONE}


@dataclass(frozen=True)
class Struck:
    """What went wrong, or how launchscope ended if nothing did."""

    script: str
    number: int
    after_s: float
    ended: str
    wrong: tuple[str, ...]
    err: str


def strike(folder: Path, script: str, number: int, after_s: float) -> Struck:
    """Run a script of SCRIPTS under launchscope in a new folder, and send one signal."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "script.py").write_text(SMALL_STEP + SCRIPTS[script])
    environ = {**ENVIRONMENT, "TMPDIR": str(folder / "tmp")}
    with subprocess.Popen(
        [sys.executable, "-m", "launchscope", "profile", "--inspect", "150", "script.py"],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=usual_signals,
    ) as process:
        time.sleep(after_s)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    wrong = [f"left {name}" for name in processes_in(process.pid)]
    killed = process.returncode == -signal.SIGKILL
    if killed:
        subprocess.run([sys.executable, "-c", _STARTS], env=environ, check=True)
    wrong += [f"left {path.name}" for path in (folder / "tmp").glob("launchscope-*")]
    told = (folder / "told").read_text() if (folder / "told").exists() else ""
    steps = (folder / "steps").read_text() if (folder / "steps").exists() else ""
    reported = "device operations per step" in out
    analyzing = err.endswith("error: interrupted\n")  # which a signal is there to end
    if not killed:
        if told not in ("", "begin end ", "entered begin end "):  # or struck while it told
            wrong.append(f"told {told}")
        if int(steps or 0) >= _ENOUGH and not reported and not analyzing:
            wrong.append("lost measurement")
    if process.returncode not in (0, 128 + number, -number):
        wrong.append(f"exit code {process.returncode}")
    moment = "start" if not told else "analysis" if analyzing else "run" if reported else "warm-up"
    ended = "end" if process.returncode == 0 else "killed" if killed else moment
    return Struck(script, number, after_s, ended, tuple(wrong), err)


def campaign(
    folder: Path, count: int, seed: int, longest_s: float = _LONGEST_S, at_once: int = _AT_ONCE
) -> list[Struck]:
    """Strikes that are chosen by the seed."""
    chance = random.Random(seed)
    with ThreadPoolExecutor(at_once) as pool:
        running = [
            pool.submit(
                strike,
                folder / str(index),
                chance.choice(list(SCRIPTS)),
                chance.choice(NUMBERS),
                chance.uniform(0, longest_s),
            )
            for index in range(count)
        ]
        return [one.result() for one in running]


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    server = Server()
    install(server)
    Popen.server = server
    with tempfile.TemporaryDirectory() as name:
        struck = campaign(Path(name), given.runs, given.seed)
    for one in struck:
        if one.wrong:
            print(*one.wrong, one.script, one.number, f"{one.after_s:.2f} s", one.err, sep="\n")
    counts = Counter((one.number, one.ended, one.wrong) for one in struck)
    rows = [
        {"signal": signal.Signals(number).name, "ended": ended, "wrong": wrong, "runs": runs}
        for (number, ended, wrong), runs in sorted(counts.items())
    ]
    bench.table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])
    bench.finish("signals", GOAL, [{"seed": given.seed}, *rows], given.output)
    sys.exit(any(one.wrong for one in struck))


if __name__ == "__main__":
    main()
