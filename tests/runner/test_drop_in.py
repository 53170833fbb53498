"""A script under launchscope sees, prints and returns what it does under plain `python`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch

import launchscope
from tests.runner.children import ENVIRONMENT, Batch, python, recorded

pytestmark = pytest.mark.child

real_start = pytest.mark.real_start
TORCH = Path(torch.__file__).parent
# Runs the runner alone, as the command line does, with nothing of its own on stdout.
DRIVER = """\
import json, sys
from pathlib import Path
from launchscope.model import Schedule, Target
from launchscope.runner.parent.session import RunOptions, record
kind, folder, full, other, name, *args = sys.argv[1:]
outcome = record(Target(kind, name, tuple(args)), Schedule(full=full == "full"),
                 RunOptions(python=other or None), Path(folder), lambda event: None)
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
RAW = "import atexit, sys\natexit.register(print, 'bye')\nsys.stdout.buffer.write(b'\\xff\\x00')\n"
FAILING = """
import helper
def outer():
    try:
        helper.fails()
    except ZeroDivisionError as error:
        raise RuntimeError("over it") from error
outer()
"""
CHAINED = """
class Inner(Exception): pass
def one():
    raise Inner("first")
def two():
    try:
        one()
    except Inner:
        raise KeyError("second")
def three():
    try:
        two()
    except KeyError as error:
        raise ValueError("third") from error
three()
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
    try:
        raise ValueError("gave up") from error
    except ValueError:
        raise KeyError("and again")
"""
IN_OPTIMIZER = """
import torch
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(1, 2)).sum().backward()
def closure():
    raise RuntimeError("not now")
opt.step(closure)
"""
IN_FORWARD = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.cross_entropy(x, torch.zeros(3).long())
Net()(torch.randn(2, 2))
"""
IN_LOADER = """
import torch
from torch.utils.data import DataLoader
class Broken(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): raise IndexError("no such sample")
for batch in DataLoader(Broken()):
    pass
"""
COMPILED = """
import torch
@torch.compiler.disable
def fails(x):
    raise ValueError("not compiled")
@torch.compile(backend="eager")
def f(x):
    return fails(x + 1)
f(torch.ones(2, 2))
"""
# The processes of the pool import the script without torch.
PICKLED = """
import multiprocessing, pickle
class Data:
    def __len__(self): return 8
    def __getitem__(self, index):
        import torch
        return torch.full((2,), float(index))
def collate(items):
    import torch
    return torch.stack(items)
def double(value):
    return value * 2
if __name__ == "__main__":
    from torch.utils.data import DataLoader
    print(pickle.loads(pickle.dumps(Data)) is Data)
    for context in ("fork", "spawn"):
        loader = DataLoader(Data(), batch_size=4, num_workers=1, collate_fn=collate,
                            multiprocessing_context=context)
        print(context, [batch.sum().item() for batch in loader])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
"""


@dataclass(frozen=True)
class Both:
    """One script, run by plain python and under launchscope."""

    plain: tuple[int, str, str]
    ours: tuple[int, str, str]


def under_launchscope(
    folder: Path, kind: str, name: str, *args: str, stdin: str = "", full: str = "", other: str = ""
) -> tuple[int, str, str]:
    results = folder.parent / f"{folder.name}-results-{full}{len(other)}{kind}"
    return both_ways(
        [sys.executable, "-c", DRIVER, kind, str(results), full, other, name, *args], folder, stdin
    )


def both_ways(command: list[str], folder: Path, stdin: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        input=stdin.encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode()


def compared(folder: Path, source: str, *args: str, stdin: str = "") -> Both:
    folder.mkdir()
    (folder / "script.py").write_text(source)
    (folder / "helper.py").write_text("def fails():\n    1 / 0\n")
    plain = both_ways([sys.executable, "script.py", *args], folder, stdin)
    return Both(plain, under_launchscope(folder, "script", "script.py", *args, stdin=stdin))


SAME = {
    "raw": RAW,
    "syntax_error": "x = 1\ndef f(:\n    pass\n",
    "import_error": "import helper\nimport nothing_of_that_name\n",
    "failing": FAILING,
    "chained": CHAINED,
    "group": "raise ExceptionGroup('both', [ValueError(1), KeyError(2)])\n",
    "hook": "import sys\n"
    "sys.excepthook = lambda *e: print('mine', e[0], e[2].tb_lineno, sys.exc_info())\n1/0\n",
    "exit_7": "import atexit, sys\natexit.register(print, 'bye')\nsys.exit(7)\n",
    "exit_text": "import sys\nsys.exit('that is all')\n",
    "exit_big": "import sys\nsys.exit(256 + 3)\n",
    "exit_none": "raise SystemExit\n",
    "os_exit": "import os\nprint('before', flush=True)\nos._exit(3)\n",
    "in_backward": IN_BACKWARD,
    "in_optimizer": IN_OPTIMIZER,
    "in_forward": IN_FORWARD,
    "in_loader": IN_LOADER,
    "compiled": COMPILED,
    "pickled": PICKLED,
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("drop_in")
    running = Batch(
        {
            name: partial(compared, folder / name, source, "a", "--flag", "-o", "p", stdin="typed")
            for name, source in SAME.items()
        }
    )
    yield running
    running.close()


def without_torch(printed: str) -> str:
    """Without torch's own frames, some of which only run where hooks are, and its log lines."""
    frame = rf'  File "{re.escape(str(TORCH))}/.*\n(?:    .*\n)*'
    return re.sub(r"(?m)^[EW]\d{4} .*\n", "", re.sub(frame, "", printed))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "torch" in source else real_start)
        for name, source in SAME.items()
        if name != "surroundings"
    ],
)
def test_output_traceback_and_exit_code_are_those_of_python(batch: Batch, name: str) -> None:
    both: Both = batch[name]
    if name == "group" and sys.version_info < (3, 11):
        pytest.skip("exception groups came with Python 3.11")
    code, out, err = both.plain
    # A script that ended well but made no step could not be measured.
    assert both.ours[0] == (code or 3)
    assert both.ours[1] == out
    assert without_torch(both.ours[2]) == without_torch(err)
    assert str(Path(launchscope.__file__).resolve().parent) not in both.ours[2]


@real_start
def test_a_missing_module_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    code, _, err = under_launchscope(tmp_path / "work", "module", "no_such_package.train")
    assert code == 1
    assert "No module named" in err
    assert "runner" not in err


@real_start
def test_a_missing_module_is_named_visibly(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    name = "\x1b]0;evil\x07\n::error::x##[error]"
    code, _, err = under_launchscope(tmp_path / "work", "module", name)
    assert code == 1
    (said,) = err.splitlines()
    assert said.isprintable()
    assert "No module named" in said
    assert "##[" not in said


@real_start
def test_the_script_knows_that_it_runs_under_launchscope(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(
        "import os, launchscope\nprint(os.environ['LAUNCHSCOPE'], launchscope.step.__name__)\n"
        "with launchscope.step(), launchscope.region('x'): print('in')\n"
    )
    out = under_launchscope(tmp_path / "work", "script", "script.py")[1]
    assert out == "1 step\nin\n"


@real_start
def test_another_interpreter_runs_the_script(tmp_path: Path) -> None:
    """A virtual environment of its own, in which launchscope is not installed."""
    home, libraries = tmp_path / "env", Path(json.__file__).parents[1]
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    base = Path(os.path.realpath(sys.executable)).parent
    (home / "pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages = false\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text("import sys; print(sys.prefix)")
    code, out, _ = under_launchscope(
        tmp_path / "work", "script", "script.py", other=str(home / "bin" / "python")
    )
    assert (code, out.strip()) == (3, str(home)), libraries


STOPPED = (
    LOOP
    + """
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
)


def test_the_run_ends_after_the_last_pass_with_its_finally_blocks(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(STOPPED)
    code, out, err = under_launchscope(tmp_path / "work", "script", "script.py")
    assert (code, out, err) == (0, "finally True\nat exit\n", "")
    code, out, err = under_launchscope(tmp_path / "work", "script", "script.py", full="full")
    to_its_end = "last line\nfinally True\nat exit\n"
    assert (code, out, err) == (0, "finally True\nat exit\n" + to_its_end, "")


def test_a_model_can_be_copied_and_saved_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(
        LOOP
        + textwrap.dedent("""
        import copy, io
        def hurt(step):
            copied, x = copy.deepcopy(net), torch.ones(1, 4)
            torch.save(net, kept := io.BytesIO())
            kept.seek(0)
            loaded = torch.load(kept, weights_only=False)
            with torch.no_grad():
                assert torch.equal(copied(x), net(x)) and torch.equal(loaded(x), net(x))
        train(40, hurt)
        print("done")
        """)
    )
    code, out, err = under_launchscope(tmp_path / "work", "script", "script.py", full="full")
    assert (code, out, err) == (0, "done\n", "")
    text = next(tmp_path.glob("work-results-*/recording.json")).read_text()
    assert json.loads(text)["inspect"]["steps"] == 3


@real_start
def test_a_script_that_looks_for_torch_before_importing_it_is_measured(
    tmp_path: Path,
) -> None:
    asks = "import importlib.util\nassert importlib.util.find_spec('torch') is not None\n"
    ran = recorded(tmp_path, 2 * asks + LOOP + "train(40)")
    assert ran.outcome.problem is None
    assert ran.recording.step is not None
    assert ran.recording.step.names[-1] == "SGD"


@real_start
def test_plain_python_is_what_the_helper_runs(tmp_path: Path) -> None:
    assert python(tmp_path, "-c", "print(1)", code=0).out == "1\n"
