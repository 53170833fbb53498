"""The plugin as a project uses it: a pytest session of its own, without a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launchscope.parser import read_profile
from tests.processes import WITHOUT_GPU, launchscope, python

pytestmark = pytest.mark.child

HEAD = """
import pytest, torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(16, 8)

def step(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()

step(batch)  # the first one also makes the optimizer's state
"""


def session(folder: Path, tests: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_project.py").write_text(HEAD + tests)
    words = ("pytest", "-p", "launchscope.pytest_plugin", "-p", "no:cacheprovider")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = python(folder, "-m", *words, "--strict-markers", *arguments, environ=alone)
    return done.returncode, done.stdout + done.stderr


def test_under_profile_pytest_does_not_warn_that_launchscope_came_first(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    words = ("profile", "-m", "pytest", "-q", "-W", "error")
    done = launchscope(tmp_path, *words, environ={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""})
    assert "1 passed" in done.stdout, done.stdout + done.stderr


PASSES = """
import asyncio, sys
from torch.optim.optimizer import _global_optimizer_pre_hooks
sgd = sys.modules["torch.optim.sgd"]
chooses = sgd._default_to_fused_or_foreach

async def later(x):
    step(x)

def parts(x):
    yield step(x)

def test_repeats(launches):
    first = launches(step, batch)
    assert first == launches(step, batch) == 24
    assert isinstance(first, int) and f"{first:d}" == "24"
    assert repr(first) == "24 device operations"

def test_arguments_go_to_the_step(launches):
    def double(x, *, times):
        for _ in range(times):
            x = x * 2
    assert launches(double, batch, times=3) == 3
    assert launches(lambda: batch.view(8, 16)) == 0

def test_run_to_its_end(launches):
    assert launches(lambda: asyncio.run(later(batch))) == launches(step, batch)
    assert launches(lambda: list(parts(batch))) == launches(step, batch)

def fails(calls):
    calls.append(1)
    if len(calls) == 2:  # the call that is counted
        raise ValueError

def test_torch_is_left_alone(launches):
    launches(step, batch)
    with pytest.raises(ValueError):
        launches(fails, [])
    assert sgd._default_to_fused_or_foreach is chooses
    assert not _global_optimizer_pre_hooks
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
"""
FAILS = """
def test_lean(launches):
    assert launches(step, batch) <= 10

def test_twice(launches):
    launches(lambda: launches(step, batch))

async def later(x):
    step(x)

def parts(x):
    yield step(x)

def test_async(launches):
    assert launches(later, batch) <= 5

def test_generator(launches):
    assert launches(parts, batch) <= 5

def test_after(launches):
    assert launches(step, batch) == 24
"""


def test_counts_are_ints_that_repeat_and_leave_torch_unchanged(tmp_path: Path) -> None:
    code, output = session(tmp_path, PASSES)
    assert code == 0, output
    assert "4 passed" in output


def test_a_limit_is_kept_and_a_count_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    code, output = session(tmp_path, FAILS, "-vv", "-rN")
    assert code == 1
    assert "24 device operations <= 10" in output
    assert re.search(r"3 aten\.mm +test_project\.py:12", output)
    assert "launches() cannot count inside another launches()" in output
    assert "launches() cannot count an async function" in output
    assert "launches() cannot count a generator" in output
    assert "never awaited" not in output
    assert "4 failed, 1 passed" in output


def test_sessions_that_do_not_count_do_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it():\n    assert not {'torch', 'pandas'} & set(sys.modules)\n"
    )
    code, output = session(tmp_path, "", "test_other.py")
    assert code == 0, output


def test_a_test_counts_what_a_rehearsal_of_the_script_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        HEAD.replace("import pytest, torch", "import torch")
        + "for _ in range(40):\n    step(batch)\n"
    )
    words = ("profile", "-q", "-o", "p.json", "train.py")
    assert launchscope(tmp_path, *words, environ=WITHOUT_GPU).returncode == 0
    assert read_profile(tmp_path / "p.json").value("device_ops_per_step") == 24


def test_no_name_of_a_failure_is_a_command_for_ci(tmp_path: Path) -> None:
    inside = tmp_path / "##vso[task.x]y"
    inside.mkdir()
    (inside / "steps.py").write_text("def double(x):\n    return x * 2\n")
    code, output = session(
        tmp_path,
        """
import sys
sys.path.insert(0, "##vso[task.x]y")
from steps import double

def test_compared(launches):
    count = launches(double, batch)
    assert count == 0
""",
    )
    assert code == 1, output
    assert output.count(r"\x23#vso[task.x]y/steps.py:2") == 1, output
    assert not re.search(r"##\w*\[", output), output
