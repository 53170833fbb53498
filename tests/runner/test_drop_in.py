"""A script under launchscope prints, raises and returns what it does under plain `python`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

import launchscope
from tests.runner.children import ENVIRONMENT, Batch, recorded

pytestmark = pytest.mark.child

real_start = pytest.mark.real_start
# Runs the runner alone, as the command line does, with nothing of its own on stdout.
DRIVER = """\
import sys
from pathlib import Path
from launchscope.model import Schedule, Target
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.session import RunOptions, record
folder, full, other, name = sys.argv[1:]
outcome = record(Target("script", name, ()), Schedule(full=full == "full"),
                 RunOptions(Process(python=other or None)), Path(folder), lambda event: None)
outcome.settle()
sys.exit(outcome.exit_code)
"""
LOOP = """
import torch
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(steps, hurt=lambda step: None):
    for step in range(steps):
        hurt(step)
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.ones(8).long()).backward()
        opt.step()
"""
IN_BACKWARD = """
import torch
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no gradient today")
net = torch.nn.Linear(2, 2)
try:
    Bad.apply(net(torch.ones(1, 2))).sum().backward()
except RuntimeError as error:
    raise ValueError("gave up") from error
"""
# The processes of the pool import the script without torch.
PICKLED = """
import multiprocessing, pickle
def collate(items):
    import torch
    return torch.tensor(items)
def double(value):
    return value * 2
if __name__ == "__main__":
    from torch.utils.data import DataLoader
    for context in ("fork", "spawn"):
        loader = DataLoader(range(8), batch_size=4, num_workers=1, collate_fn=collate,
                            multiprocessing_context=context)
        print(context, [batch.sum().item() for batch in loader])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
"""
SAME = {
    "in_backward": IN_BACKWARD,
    "pickled": PICKLED,
}
Ended: TypeAlias = tuple[int, str, str]  # the exit code, stdout, stderr


def run(folder: Path, *command: str) -> Ended:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=120,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def under_launchscope(folder: Path, source: str, full: str = "", python: str = "") -> Ended:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(source)
    results = folder.parent / f"{folder.name}-{full}-results"
    return run(folder, "-c", DRIVER, str(results), full, python, "script.py")


def both_ways(folder: Path, source: str) -> tuple[Ended, Ended]:
    folder.mkdir()
    ours = under_launchscope(folder, source)
    return run(folder, "script.py"), ours


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("drop_in")
    running = Batch({name: partial(both_ways, folder / name, SAME[name]) for name in SAME})
    yield running
    running.close()


def without_torch(printed: str) -> str:
    """Without torch's own frames, some of which only run where hooks are, and its log lines."""
    frame = rf'  File "{re.escape(str(Path(torch.__file__).parent))}/.*\n(?:    .*\n)*'
    return re.sub(r"(?m)^[EW]\d{4} .*\n", "", re.sub(frame, "", printed))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if "torch" in source else real_start) for n, source in SAME.items()],
)
def test_output_traceback_and_exit_code_are_those_of_python(batch: Batch, name: str) -> None:
    (code, out, err), ours = batch[name]
    # A script that ended well but made no step could not be measured.
    assert ours[:2] == (code or 3, out)
    assert without_torch(ours[2]) == without_torch(err)
    assert str(Path(launchscope.__file__).resolve().parent) not in ours[2]


@real_start
def test_the_script_knows_that_it_runs_under_launchscope(tmp_path: Path) -> None:
    source = (
        "import os, launchscope\nprint(os.environ['LAUNCHSCOPE'], launchscope.step.__name__)\n"
        "with launchscope.step(), launchscope.region('x'): print('in')\n"
    )
    assert under_launchscope(tmp_path / "work", source)[1] == "1 step\nin\n"


@real_start
def test_another_interpreter_runs_the_script(tmp_path: Path) -> None:
    """A virtual environment of its own, in which launchscope is not installed."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(os.path.realpath(sys.executable))
    base = Path(os.path.realpath(sys.executable)).parent
    configuration = f"home = {base}\ninclude-system-site-packages = false\n"
    (tmp_path / "env" / "pyvenv.cfg").write_text(configuration)
    source = "import sys; print(sys.prefix)"
    code, out, _ = under_launchscope(tmp_path / "work", source, python=str(python))
    assert (code, out.strip()) == (3, str(tmp_path / "env"))


STOPPED = """
import atexit
atexit.register(print, "at exit")
try:
    train(40)
    print("last line")
except Exception:
    print("caught")
finally:
    print("finally", net.weight.grad is not None)
"""


def test_the_run_ends_after_the_last_pass_with_its_finally_blocks(tmp_path: Path) -> None:
    stopped = under_launchscope(tmp_path / "work", LOOP + STOPPED)
    assert stopped == (0, "finally True\nat exit\n", "")
    code, out, err = under_launchscope(tmp_path / "work", LOOP + STOPPED, full="full")
    to_its_end = "last line\nfinally True\nat exit\n"
    assert (code, out, err) == (0, "finally True\nat exit\n" + to_its_end, "")


@real_start
def test_a_script_that_looks_for_torch_before_importing_it_is_measured(tmp_path: Path) -> None:
    asks = "import importlib.util\nassert importlib.util.find_spec('torch') is not None\n"
    ran = recorded(tmp_path, 2 * asks + LOOP + "train(40)")
    assert ran.outcome.problem is None
    assert ran.recording.step is not None
    assert ran.recording.step.names[-1] == "SGD"
