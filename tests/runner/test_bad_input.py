"""Scripts that fail, hang, crash or get in the way: a sentence, a code, and what there was."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import partial

import pytest

from tests.runner.children import Batch, Said, launchscope

pytestmark = pytest.mark.child

TRAIN = """
import os, sys, time, torch
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters())
def step():
    loss = torch.nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.ones(8).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LOOP = "for i in range(40): step()\n"
# As on a full disk: no file grows any more.
NO_ROOM = (
    "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
)
# Breaks a function of launchscope, as a bug in it would.
BREAK = "sys.modules['launchscope.runner.child.steps.step_calls'].user_line = None\n"
IN_A_MODE = """
def check(*_):
    if torch._C._len_torch_dispatch_stack(): raise RuntimeError('no modes, please')
net.register_forward_hook(check)
"""
BUG = "this is a bug in launchscope: please report it, with the output of the same command with -v"


@dataclass(frozen=True)
class Case:
    """`says` is looked for in our error, or, where the run goes well, in all we print, and there
    `also`. `blames`: whose failure the sentences say it is."""

    source: str
    code: int
    says: str = ""
    options: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    blames: str = "the script"


CASES = {
    # ------------------------------------------------------------------ it ends too soon
    "raises": Case("raise RuntimeError('x')", 1, "exit code 1 (RuntimeError)"),
    "exits": Case("import sys; sys.exit(7)", 7, "exit code 7 before it was measured"),
    "no_torch": Case("print('nothing to see')", 3, "without importing PyTorch"),
    "no_step": Case("import torch\ntorch.ones(3).sum()", 3, "without calling a torch.nn.Module"),
    "two_steps": Case(TRAIN + "step(); step()", 3, "no repeating step was found"),
    "ends_after_3": Case(TRAIN + "for i in range(3): step()", 0, "its step was seen 3 times"),
    "skips_all_steps": Case(
        TRAIN + "for i in range(12): step()\nprint('trained')",
        3,
        "the script made 12 steps: --skip-steps 100 leaves too few of them",
        ("--skip-steps", "100"),
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
    # --------------------------------------------------------------------- it hangs or dies
    "hangs": Case(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: time.sleep(1)",
        3,
        "time limit was reached",
        ("--timeout", "1"),
    ),
    "crashes": Case("import ctypes\nctypes.string_at(0)", 139, "was ended by SIGSEGV"),
    "killed": Case("import os\nos.kill(os.getpid(), 9)", 137, "was ended by SIGKILL"),
    "os_exit": Case(TRAIN + "step()\nos._exit(3)", 3, "exit code 3"),
    # ------------------------------------------------------------------ it gets in the way
    "prints_megabytes": Case(
        TRAIN + "for i in range(40): step(); print('x' * 200_000)\n", 0, "NO GPU: STRUCTURE ONLY"
    ),
    "processes": Case(
        TRAIN
        + """
import multiprocessing
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
    "deletes_its_folder_before_its_end": Case(
        TRAIN + "import shutil\nshutil.rmtree(os.getcwd())\n" + LOOP,
        0,
        "The folder of the script is gone, so it was not run to its end",
        ("--full",),
    ),
    "fills_the_disk": Case(
        TRAIN + f"step()\n{NO_ROOM}{LOOP}sys.exit('not stopped')",
        3,
        "the results could not be written to",
        also=("ulimit -f",),
    ),
    # -------------------------------------------------------------------- whose failure it is
    "fails_by_itself": Case(
        TRAIN + "raise ValueError('mine')",
        1,
        "exit code 1 (ValueError) before it was measured",
        ("--full",),
        also=("run it without launchscope first",),
    ),
    "breaks_the_search": Case(
        TRAIN + BREAK + LOOP + "print('all done')\n",
        3,
        "failed in the script's process with TypeError (step_calls.py:",
        ("--full",),
        also=(BUG, "all done"),
        blames="launchscope",
    ),
    "fails_under_a_dispatch_mode": Case(
        TRAIN + IN_A_MODE + LOOP,
        1,
        "while launchscope looked into its steps",
        ("--full",),
        also=("(RuntimeError)", f"if it does not, {BUG}"),
        blames="one of both",
    ),
    "fails_in_a_second_run": Case(
        TRAIN
        + "if os.path.exists('mark'): raise RuntimeError('left behind')\n"
        + "open('mark', 'w').close()\nfor i in range(7): step()\n",
        1,
        "although an earlier run went well",
        also=("--max-runs 1",),
        blames="launchscope",
    ),
    # --------------------------------------------------------------------- what no CPU can do
    "replays_before_it_captures": Case(
        "import torch\ntorch.cuda.CUDAGraph().replay()\n", 1, also=("nothing was captured",)
    ),
    "needs_a_gpu": Case(
        "import torch\nx = torch.ones(1).cuda()\ntorch.cuda.MemPool()\n",
        1,
        "not rehearsed: what fails at script.py:3",
    ),
    "closes_stderr": Case(TRAIN + "sys.stderr.close()\n" + LOOP, 0),
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    folder = tmp_path_factory.mktemp("bad_input")
    return Batch(
        {
            name: partial(launchscope, folder / name, case.source, *case.options)
            for name, case in CASES.items()
        }
    )


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
    for text in case.also:
        assert text in everything, said.err
    assert (BUG in everything) is (BUG in " ".join(case.also))
    if case.blames != "the script":
        assert "run it without launchscope first" not in everything
    if case.code != 0:
        assert "Traceback" not in ours(said)
        assert len(ours(said).strip().splitlines()) <= 2
    else:
        assert "device operations per step" in said.out
        assert "Traceback" not in said.err


def test_a_script_that_fails_keeps_its_own_traceback(batch: Batch) -> None:
    said = batch["raises"]
    assert said.err.count("Traceback (most recent call last)") == 1
    assert said.err.index("RuntimeError: x\n") < said.err.index("error: ")
    assert 'script.py", line 1, in <module>' in said.err


def test_what_a_script_prints_is_all_there(batch: Batch) -> None:
    assert batch["prints_megabytes"].out.count("x" * 200_000) >= 12
    assert batch["skips_all_steps"].out.count("trained") == 1  # it runs once
