"""A script under launchscope prints, raises and returns what it does under plain `python`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch

import launchscope
from tests.runner.children import SMALL_STEP, Said, python

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
sys.exit(outcome.exit_code)
"""
LOOP = SMALL_STEP + "def train(steps):\n    for _ in range(steps): step()\n"
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


def under_launchscope(folder: Path, source: str, full: str = "", other: str = "") -> Said:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(source)
    results = folder.parent / f"{folder.name}-{full}-results"
    return python(folder, "-c", DRIVER, str(results), full, other, "script.py")


def without_torch(printed: str) -> str:
    """Without torch's own frames, some of which only run where hooks are, and its log lines."""
    frame = rf'  File "{re.escape(str(Path(torch.__file__).parent))}/.*\n(?:    .*\n)*'
    return re.sub(r"(?m)^[EW]\d{4} .*\n", "", re.sub(frame, "", printed))


@pytest.mark.parametrize("source", [IN_BACKWARD, PICKLED], ids=["in backward", "workers"])
def test_output_traceback_and_exit_code_are_those_of_python(tmp_path: Path, source: str) -> None:
    ours = under_launchscope(tmp_path / "work", source)
    plain = python(tmp_path / "work", "script.py")
    # A script that ended well but made no step could not be measured.
    assert (ours.code, ours.out) == (plain.code or 3, plain.out)
    assert without_torch(ours.err) == without_torch(plain.err)
    assert str(Path(launchscope.__file__).resolve().parent) not in ours.err


@real_start
def test_the_script_knows_that_it_runs_under_launchscope(tmp_path: Path) -> None:
    source = (
        "import os, launchscope\nprint(os.environ['LAUNCHSCOPE'], launchscope.step.__name__)\n"
        "with launchscope.step(), launchscope.region('x'): print('in')\n"
    )
    assert under_launchscope(tmp_path / "work", source).out == "1 step\nin\n"


@real_start
def test_another_interpreter_runs_the_script(tmp_path: Path) -> None:
    """A virtual environment of its own, in which launchscope is not installed."""
    other = tmp_path / "env" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.symlink_to(os.path.realpath(sys.executable))
    base = Path(os.path.realpath(sys.executable)).parent
    configuration = f"home = {base}\ninclude-system-site-packages = false\n"
    (tmp_path / "env" / "pyvenv.cfg").write_text(configuration)
    source = "import sys; print(sys.prefix)"
    said = under_launchscope(tmp_path / "work", source, other=str(other))
    assert (said.code, said.out.strip()) == (3, str(tmp_path / "env"))


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
    assert stopped == Said(0, "finally True\nat exit\n", "")
    whole = under_launchscope(tmp_path / "work", LOOP + STOPPED, full="full")
    to_its_end = "last line\nfinally True\nat exit\n"
    assert whole == Said(0, "finally True\nat exit\n" + to_its_end, "")
