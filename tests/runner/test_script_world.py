"""A script changes the world around it: neither it nor the measurement notices the other."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.runner.children import SMALL_STEP, Batch, Said, launchscope, python

pytestmark = pytest.mark.child

TRAIN = SMALL_STEP.replace("net =", "torch.manual_seed(0)\nnet =") + "step()\n"
LOOP = "for i in range(30): step()\nprint('weight', net.weight.sum().item())\n"
# The script replaces and restores `backward` around every step, as a library may.
FOR_A_WHILE = """
import torch
calls = 0
def patched(original):
    def mine(*args, **kwargs):
        global calls
        calls += 1
        return original(*args, **kwargs)
    return mine
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(30):
    original = torch.Tensor.backward
    torch.Tensor.backward = mine = patched(original)
    opt.zero_grad()
    net(torch.ones(8, 4)).sum().backward()
    opt.step()
    assert torch.Tensor.backward is mine
    torch.Tensor.backward = original
print("calls", calls)
"""


@dataclass(frozen=True)
class Pair:
    """What a script prints and exits with under `python` and under `launchscope --full`."""

    alone: Said
    profiled: Said


FOLDERS = {
    "removes_its_folder": TRAIN + "import shutil\nshutil.rmtree(os.getcwd())\n" + LOOP,
    "removes_and_makes_it_again": TRAIN
    + "import shutil\nhere = os.getcwd()\nshutil.rmtree(here)\nos.mkdir(here)\n"
    + LOOP,
    "renames_its_folder": TRAIN + "os.rename(os.getcwd(), os.getcwd() + '-2')\n" + LOOP,
    "leaves_its_folder": TRAIN + "import tempfile\nos.chdir(tempfile.mkdtemp())\n" + LOOP,
}


AWKWARD = {
    "replaces a function of torch for a while": FOR_A_WHILE,
    "replaces print, open and json.dumps": TRAIN
    + """
import builtins, io, json
calls = []
def counted(name, original):
    def mine(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)
    return mine
builtins.print, builtins.open = counted("print", print), counted("open", open)
json.dumps = lambda *args, **kwargs: calls.append("dumps") or b"{}"
for i in range(30): step()
sys.stdout.write(f"{calls}\\n")
sys.exit("ends with a message")
""",
    "freezes the clock": TRAIN
    + """
import os, threading
def wrong(*args): raise RuntimeError("not this clock")
time.time = time.perf_counter = time.perf_counter_ns = time.monotonic = wrong
"""
    + LOOP,
    "clears the environment": TRAIN + "os.environ.clear()\nsys.setrecursionlimit(150)\n" + LOOP,
    "saves generators": TRAIN
    + """
import copy, pickle
generator = torch.Generator("cpu").manual_seed(5)
kept = pickle.loads(pickle.dumps({"generator": generator}))["generator"]
for one in (generator, kept, copy.deepcopy(generator), torch.default_generator):
    print(isinstance(one, torch.Generator), one.initial_seed() < 6)
"""
    + LOOP,
}
BESIDE = """
import secrets, torch
net = torch.nn.Linear(3, 3)
with torch.no_grad():
    for _ in range(60):
        net(torch.ones(2, 3))
print(secrets.KEY)
"""


def _both(folder: Path, source: str) -> Pair:
    profiled = launchscope(folder, source, "--full")
    (folder / "script.py").write_text(source)
    return Pair(python(folder, "script.py"), profiled)


def _in_folder(folder: Path, source: str) -> tuple[Path, Said]:
    """Run from a folder that is its own, with a relative and an absolute output."""
    (folder / "work").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    outputs = ["-o", "relative.json", "-o", str(folder / "absolute.json")]
    script = str(folder / "script.py")
    said = python(folder / "work", "-m", "launchscope", "profile", *outputs, script)
    return folder, said


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    base = tmp_path_factory.mktemp("world")
    work: dict[str, Any] = {
        name: partial(_both, base / name, source) for name, source in AWKWARD.items()
    }
    work |= {n: partial(_in_folder, base / n, source) for n, source in FOLDERS.items()}
    batch = Batch(work)
    yield batch
    batch.close()


@pytest.mark.parametrize("name", AWKWARD)
def test_a_script_that_changes_its_world_is_measured_and_does_the_same(
    batch: Batch, name: str
) -> None:
    pair = batch[name]
    assert pair.alone.out in pair.profiled.out, pair.profiled.err
    # Two processes write there: a line of ours may stand within one of the script's.
    assert pair.alone.err in re.sub(r"launchscope: .*\n", "", pair.profiled.err)
    assert "inspecting, 3 steps" in pair.profiled.err
    assert pair.profiled.code == pair.alone.code
    ended = f"he script ended with exit code {pair.alone.code}"
    for printed in (pair.profiled.out, pair.profiled.err):
        assert (ended in " ".join(printed.split())) == (pair.alone.code != 0)


@pytest.mark.real_start  # where torch has not imported Dynamo yet, and numpy not secrets
def test_a_file_beside_the_script_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("KEY = 'own'\n")
    pair = _both(tmp_path, BESIDE)
    assert pair.alone.out == "own\n", pair.alone.err
    assert pair.alone.out in pair.profiled.out, pair.profiled.err
    assert "inspecting, 3 steps" in pair.profiled.err


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("removes_and_makes_it_again", "work"),
        ("renames_its_folder", "work-2"),
        ("leaves_its_folder", "work"),
    ],
)
def test_outputs_go_where_they_were_meant(batch: Batch, name: str, where: str) -> None:
    folder, said = batch[name]
    assert said.code == 0, said.err
    for path in (folder / "absolute.json", folder / where / "relative.json"):
        assert json.loads(path.read_text())["step"]["source"]["file"] == str(folder / "script.py")


def test_a_removed_folder_costs_only_the_output_in_it(batch: Batch) -> None:
    folder, said = batch["removes_its_folder"]
    assert said.code == 2, said.err
    assert "cannot write relative.json: No such file or directory" in said.err
    assert json.loads((folder / "absolute.json").read_text())["step"]["period"]
    for saved in Path(tempfile.gettempdir()).glob("launchscope-*/profile.json"):
        if str(saved) in said.err:
            saved.unlink()
            saved.parent.rmdir()


def test_lines_are_relative_to_the_folder_of_the_start(tmp_path: Path) -> None:
    source = "import os, tempfile\n" + TRAIN + "os.chdir(tempfile.mkdtemp())\n" + LOOP
    said = launchscope(tmp_path, source, "--full")
    assert "step at script.py:" in said.out
