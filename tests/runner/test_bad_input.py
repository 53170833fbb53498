"""Scripts that fail, hang, crash or get in the way: a sentence, a code, and what there was."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.runner.children import Batch, Said, interrupted, launchscope

pytestmark = pytest.mark.child

TRAIN = """
import sys, time, torch
torch.set_num_threads(1)  # forked children hang otherwise, also without launchscope
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters())
def step():
    loss = torch.nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.ones(8).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
MEASURED_AGAIN = "before it was measured; another run of it measured its earlier steps"
LOOP = "for i in range(40): step()\n"
TRIALS = """
import torch
for trial in range(8):
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    opt = torch.optim.Adam(net.parameters())
    for i in range(12):
        loss = net(torch.randn(8, 4)).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""


@dataclass(frozen=True)
class Case:
    """`says` is looked for in our error, or, where the run goes well, in all we print."""

    source: str
    code: int
    says: str = ""
    options: tuple[str, ...] = ()


CASES = {
    # ------------------------------------------------------------------ it ends too soon
    "no_such_import": Case("import no_such_package", 1, "exit code 1 (ModuleNotFoundError)"),
    "raises_first": Case("raise RuntimeError('x')", 1, "exit code 1 (RuntimeError)"),
    "exits_first": Case("import sys; sys.exit(7)", 7, "exit code 7 before it was measured"),
    "raises_in_step_3": Case(
        TRAIN + "step(); step(); net[0] = None; step()", 1, "(TypeError) before it was measured"
    ),
    "no_torch": Case("print('nothing to see')", 3, "without importing PyTorch"),
    "other_torch": Case(
        "open('torch.py', 'w').write('TEXT = 5')\nimport torch\nprint(torch.TEXT)",
        3,
        "without importing PyTorch",
    ),
    "no_step": Case("import torch\ntorch.ones(3).sum()", 3, "without calling a torch.nn.Module"),
    "two_steps": Case(TRAIN + "step(); step()", 3, "no repeating step was found"),
    "ends_after_3": Case(TRAIN + "for i in range(3): step()", 0, "its step was seen 3 times"),
    "ends_after_3_in_one_line": Case(
        TRAIN + "for i in range(3): opt.zero_grad(); net(torch.ones(4)).sum().backward(); "
        "opt.step()",
        0,
        "its step was seen 3 times",
    ),
    "skips_all_steps": Case(
        TRAIN + "for i in range(12): step()",
        3,
        "the script made 12 steps: --skip-steps 11 leaves too few of them",
        ("--skip-steps", "11"),
    ),
    "skips_more_steps_than_there_are": Case(
        TRAIN + "for i in range(12): step()\nprint('trained')",
        3,
        "the script made 12 steps: --skip-steps 100 leaves too few of them",
        ("--skip-steps", "100"),
    ),
    "skips_too_little": Case("", 2, "0 or more, not -1", ("--skip-steps", "-1")),
    "waits_for_nothing_known": Case(
        "", 2, "expected one of step, optimizer, not forward", ("--wait-for", "forward")
    ),
    "waits_for_what_it_does_not_measure": Case(
        "",
        2,
        "--step-from forward and --wait-for optimizer exclude each other",
        ("--step-from", "forward", "--wait-for", "optimizer"),
    ),
    "waits_for_too_long": Case(
        TRAIN + "while True: net(torch.ones(4)), time.sleep(0.01)",
        3,
        "leave out --wait-for optimizer",
        ("--wait-for", "optimizer", "--timeout", "2"),
    ),
    "marks_nothing": Case(
        TRAIN + "for i in range(20): step()", 3, "no step was marked", ("--step-from", "marker")
    ),
    "fails_after_the_verdict": Case(
        TRAIN + "for i in range(20): step()\nraise SystemExit(3)",
        3,
        "the script ended with exit code 3 after it was measured",
        ("--full",),
    ),
    "fails_after_forwards": Case(
        TRAIN + "for i in range(500): net(torch.ones(2, 4))\nraise RuntimeError('no data')",
        1,
        f"exit code 1 (RuntimeError) {MEASURED_AGAIN}",
    ),
    "exits_in_the_first_inspected_step": Case(
        TRAIN + "for i in range(10): step()\nnet(torch.ones(2, 4)), sys.exit(4)",
        4,
        f"exit code 4 {MEASURED_AGAIN}",
    ),
    "raises_in_the_first_inspected_step": Case(
        TRAIN + "for i in range(10): step()\nnet(torch.ones(8, 3))",
        1,
        f"exit code 1 (RuntimeError) {MEASURED_AGAIN}",
    ),
    "ends_after_7": Case(TRAIN + "for i in range(7): step()", 0, "its step was seen 7 times"),
    "ends_after_12": Case(TRAIN + "for i in range(12): step()", 0, "ended after 12 steps"),
    "ends_after_20": Case(TRAIN + "for i in range(20): step()", 0),
    # --------------------------------------------------------------------- it hangs or dies
    "hangs": Case(
        "import time\nwhile True: time.sleep(1)", 3, "time limit was reached", ("--timeout", "1")
    ),
    "hangs_deaf": Case(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: time.sleep(1)",
        3,
        "time limit was reached",
        ("--timeout", "1"),
    ),
    "segfault": Case("import ctypes\nctypes.string_at(0)", 139, "was ended by SIGSEGV"),
    "abort": Case("import os\nos.abort()", 134, "was ended by SIGABRT"),
    "segfault_in_inspection": Case(
        TRAIN + "import ctypes\nfor i in range(40): step(); i == 11 and ctypes.string_at(0)",
        139,
        f"was ended by SIGSEGV {MEASURED_AGAIN}",
    ),
    "os_exit": Case(TRAIN + "import os\nstep()\nos._exit(3)", 3, "exit code 3"),
    "no_place_for_the_profile": Case(
        "raise SystemExit('was run')", 2, "is not a directory", ("-o", "/nowhere/at/all.json")
    ),
    # ------------------------------------------------------------------ it gets in the way
    "prints_megabytes": Case(
        TRAIN + "for i in range(40): step(); print('x' * 200_000)\n", 0, "INCONCLUSIVE"
    ),
    "workers": Case(
        TRAIN
        + """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 4))
for epoch in range(3):
    for batch in DataLoader(data, batch_size=2, num_workers=2):
        step()
""",
        0,
    ),
    "signal_handlers": Case(
        "import signal\nfor s in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(s, lambda *_: None)\n" + TRAIN + LOOP,
        0,
    ),
    "bare_except": Case(
        TRAIN + "while True:\n    try: step()\n    except: pass\n", 0, "INCONCLUSIVE"
    ),
    "except_base_exception": Case(
        TRAIN
        + """
import gc
while True:
    try:
        with torch.no_grad(): net(torch.randn(8, 4))
        step()
    except BaseException as error:
        print("swallowed", type(error).__name__)
""",
        0,
        "INCONCLUSIVE",
    ),
    "processes": Case(
        TRAIN
        + """
import multiprocessing
if __name__ == "__main__":
    workers = [multiprocessing.get_context("fork").Process(target=step) for _ in range(2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
""",
        3,
        "one process per GPU, use --nproc-per-node",
    ),
    "processes_beside_training": Case(
        "import multiprocessing\nif __name__ == '__main__':\n"
        + textwrap.indent(TRAIN, "    ")
        + """
    worker = multiprocessing.get_context("spawn").Process(target=print)
    worker.start()
    for i in range(12): step()
    worker.join()
""",
        0,
        "started 1 process of its own",
    ),
    "trains_in_a_command": Case(
        """
import subprocess, sys, torch
subprocess.run(["git", "--version"])
subprocess.run([sys.executable, "-c", "print('trains')"])
""",
        3,
        "started 1 process of its own, and the work seems to run there",
    ),
    "a_model_for_each_trial": Case(TRIALS, 0, "its step was seen 12 times"),
    "a_model_for_each_long_trial": Case(
        TRIALS.replace("range(12)", "range(30)"),
        0,
        "its step was seen 30 times",
        ("--inspect", "40"),
    ),
    "several_threads": Case(  # eight, none of which makes enough forwards alone
        """
import threading, time, torch
from concurrent.futures import ThreadPoolExecutor
net = torch.nn.Linear(4, 4)
together = threading.Barrier(8)
@torch.no_grad()
def serve(number):
    together.wait()
    for _ in range(10):
        time.sleep(0.002)
        net(torch.randn(2, 4))
with ThreadPoolExecutor(8) as pool:
    list(pool.map(serve, range(8)))
""",
        3,
        "in several threads, and launchscope follows only one",
    ),
    "no_step_in_any_of_several_threads": Case(  # to run longer would not help
        """
import threading, torch
nets = [torch.nn.Linear(4, 4) for _ in range(5)]
together = threading.Barrier(3)
@torch.no_grad()
def serve():
    for i in range(40):
        together.wait()
        nets[(i * i * i + i // 3) % 5 if i % 7 else i % 2](torch.randn(2, 4))
threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
        3,
        "and launchscope follows only one\nhint: mark the step with launchscope.step(), or use one",
    ),
    "forward_alone_of_training": Case(
        TRAIN + LOOP, 0, "the step is the forward alone, as you asked", ("--step-from", "forward")
    ),
    "profiles_itself": Case(
        TRAIN
        + """
with torch.profiler.profile() as profiler:
    for i in range(40): step()
print(len(profiler.events()))
""",
        0,
    ),
    "forks": Case(
        TRAIN
        + """
import os
for i in range(40):
    step()
    if i in (5, 11) and os.fork() == 0:
        for j in range(8): step()
        sys.exit(5)
""",
        0,
    ),
    "forks_in_a_marked_step": Case(
        TRAIN
        + """
import os, launchscope
for i in range(40):
    with launchscope.step():
        step()
    if i == 3 and os.fork() == 0:
        for j in range(30):
            with launchscope.step(): torch.ones(3).add_(1)
        raise ValueError("the child's own affair")
""",
        0,
        "marker launchscope.step",
    ),
    "trains_in_a_thread": Case(
        TRAIN
        + """
import threading
def train():
    for i in range(40): step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
print("joined")
""",
        0,
    ),
    "acts_in_a_thread": Case(
        TRAIN
        + """
import threading
def watch():
    while True: step_of_other(torch.ones(1, 2))
step_of_other = torch.nn.Linear(2, 2)
step()
threading.Thread(target=watch, daemon=True).start()
for i in range(40): step()
""",
        0,
    ),
    "changes_folder": Case(TRAIN + "import os, tempfile\nos.chdir(tempfile.mkdtemp())\n" + LOOP, 0),
    "closes_stderr": Case(TRAIN + "sys.stderr.close()\n" + LOOP, 0),
    "limits_reached_by_irregular_steps": Case(
        TRAIN
        + """
for i in range(9):
    for j in range(i + 1): net(torch.randn(2, 4)).sum().backward()
    opt.step()
""",
        0,
        "do not repeat one sequence of events",
    ),
}
SLOW = TRAIN + "for i in range(2000):\n    step(); time.sleep(0.01)\n"
SIGNALED = "    if i == 30: open('now', 'w')\n"
INTERRUPTED = {
    "in_a_pass": (SLOW + SIGNALED, ("--inspect", "1500")),
    # Not one long sleep: Python notices a signal that comes just before it only behind it.
    "before_a_step": ("import time\nopen('now', 'w')\nfor _ in range(600): time.sleep(0.1)", ()),
    "ignored": (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "open('now', 'w')\ntime.sleep(2)",
        (),
    ),
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("bad_input")
    running = Batch(
        {
            name: partial(launchscope, folder / name, case.source, *case.options)
            for name, case in CASES.items()
        }
        | {
            name: partial(interrupted, folder / name, source, "now", *options)
            for name, (source, options) in INTERRUPTED.items()
        }
    )
    yield running
    running.close()


def ours(said: Said) -> str:
    """What launchscope itself printed on stderr after the script's own last words."""
    return said.err.rpartition("error: ")[2] if "error: " in said.err else said.err


@pytest.mark.parametrize("name", CASES)
def test_it_ends_with_a_sentence_and_the_right_exit_code(batch: Batch, name: str) -> None:
    said, case = batch[name], CASES[name]
    assert said.code == case.code, said.err
    everything = re.sub(r"\s+", " ", said.out[-6000:] + said.err)
    assert case.says in (everything if case.code == 0 else ours(said))
    assert "launchscope/runner" not in said.err
    assert "this is a bug in launchscope" not in said.err
    if MEASURED_AGAIN in case.says:
        assert "device operations per step" in said.out
    if case.code != 0:
        assert "Traceback" not in ours(said)
        assert len(ours(said).strip().splitlines()) <= 2
    else:
        assert "device operations per step" in said.out
        assert "Traceback" not in said.err or name == "forks_in_a_marked_step"


def test_a_script_that_fails_keeps_its_own_traceback(batch: Batch) -> None:
    said = batch["raises_first"]
    assert said.err.count("Traceback (most recent call last)") == 1
    assert said.err.index("RuntimeError: x\n") < said.err.index("error: ")
    assert 'script.py", line 1, in <module>' in said.err


def test_what_a_script_prints_is_all_there(batch: Batch) -> None:
    assert batch["prints_megabytes"].out.count("x" * 200_000) >= 12
    assert "joined" in batch["trains_in_a_thread"].out
    assert batch["no_place_for_the_profile"].out == ""
    assert "was run" not in batch["no_place_for_the_profile"].err


def test_a_script_with_fewer_steps_than_are_skipped_runs_once(batch: Batch) -> None:
    assert batch["skips_more_steps_than_there_are"].out.count("trained") == 1


def test_a_script_that_swallows_every_stop_is_left(batch: Batch) -> None:
    assert 1 <= batch["except_base_exception"].out.count("swallowed StopRun") <= 5


def test_forked_children_report_nothing(batch: Batch) -> None:
    assert "ended after" not in batch["forks"].out
    assert "process" not in batch["forks"].err


def test_ctrl_c_gives_the_report_of_what_was_measured(batch: Batch) -> None:
    said = batch["in_a_pass"]
    assert said.code == 130, said.err
    assert "device operations per step" in said.out
    assert said.error.startswith("interrupted; this is what was measured")
    assert said.err.count("KeyboardInterrupt") == 1


@pytest.mark.parametrize("name", ["before_a_step", "ignored"])
def test_ctrl_c_before_any_step_is_reported_in_a_sentence(batch: Batch, name: str) -> None:
    said = batch[name]
    assert (said.code, said.out) == (130, "")
    assert said.error.strip() == "interrupted before anything was measured"
    assert "launchscope/" not in said.err


def test_a_missing_script_is_reported_in_a_sentence(batch: Batch, tmp_path_factory: object) -> None:
    folder = tmp_path_factory.mktemp("missing")  # type: ignore[attr-defined]
    said = launchscope(folder, None, name="trian.py")
    assert (said.code, said.out) == (2, "")
    assert "trian.py: no such file" in said.error
