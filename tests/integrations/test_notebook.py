"""`%%launchscope` in cells that a real IPython runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from launchscope.integrations import notebook
from launchscope.model import Profile, Schedule
from launchscope.runner.child.passes.step_controller import StepController

pytestmark = pytest.mark.child  # the measurement asks git for the commit
LOOP = """
import torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
passes = 0; kept = 7
for epoch in range(2):
    for x in torch.randn(3, 16, 8):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step(); optimizer.zero_grad()
        passes += 1
after = passes
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = shells.InteractiveShell()
    shell.history_manager.enabled = False
    assert shell.run_cell("%load_ext launchscope").success
    return shell


def said_by(captured: Any) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", captured.out + captured.err).strip()


@pytest.mark.parametrize(("epochs", "passes", "again"), [(2, 18, True), (20, 60, False)])
def test_the_report_comes_once_all_is_measured_and_the_loop_goes_on_to_its_own_end(
    shell: Any, capsys: pytest.CaptureFixture[str], epochs: int, passes: int, again: bool
) -> None:
    cell = LOOP.replace("range(2)", f"range({epochs})").replace(
        "after =", "    print('over')\nafter ="
    )
    result = shell.run_cell(f"%%launchscope{cell}")
    result.raise_error()
    profile, names = result.result.profile, shell.user_ns
    assert isinstance(profile, Profile)
    assert (profile.value("device_ops_per_step") or 0) > 5
    assert profile.target.name == "cell:7"  # the magic is line 1
    assert str(profile.step and profile.step.source).endswith(":7")
    assert names["after"] == names["passes"] == passes
    assert not {notebook._PASSES, "loop", "step"} & names.keys()
    report = " ".join(said_by(capsys.readouterr()).rpartition("over")[0].split())
    assert report.count("The loop was measured for 13 passes and goes on to its own end.") == 1
    assert ("It began 3 times, so the cell trains for longer." in report) is again
    assert 'launchscope.save(..., "report.html") writes the whole report' in report
    formats, _ = shell.display_formatter.format(result.result)
    assert "cell:7" in formats["text/plain"]
    assert formats["text/html"].startswith("<pre")


@pytest.mark.parametrize("at", [1, 12, 40])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_cell_that_raises_shows_only_its_own_lines(
    shell: Any, capsys: pytest.CaptureFixture[str], at: int, error: type[BaseException]
) -> None:
    broken = LOOP.replace(
        "passes += 1", f"passes += 1\n        if passes == {at}: raise {error.__name__}"
    )
    result = shell.run_cell(f"%%launchscope{broken.replace('range(2)', 'range(20)')}")
    assert type(result.error_in_exec) is error
    shown = said_by(capsys.readouterr()).rpartition("Profile.")[2]
    assert f"---> 12         if passes == {at}: raise" in shown
    assert shown.count("File ") == 1
    assert "launchscope/" not in shown
    assert (shell.user_ns["kept"], shell.user_ns["passes"]) == (7, at)
    assert "after" not in shell.user_ns


@pytest.mark.parametrize(
    "body",
    [
        "loss: torch.Tensor = model(x)",
        "from math import *",
        "global loss; loss = x",
        "class A: loss = x",
        "names = [x.shape for _ in range(2)]; del names",
        "if passes % 2: continue",
        "if passes == 100: break",
    ],
)
def test_what_python_allows_in_a_module_is_allowed_in_the_loop(shell: Any, body: str) -> None:
    for cell in (
        f"for x in torch.randn(99, 8):\n    passes += 1\n    {body}",
        f"while passes < 99:\n    passes += 1; x = torch.randn(8)\n    {body}",
        "for again in range(33):\n    try:\n        for x in torch.randn(3, 8):\n            "
        f"passes += 1\n            {body}\n    except: passes = -1",
    ):
        setup = "import torch\nmodel = torch.nn.Linear(8, 4)\npasses = 0\n"
        shell.run_cell(f"%%launchscope\n{setup}{cell}").raise_error()
        assert shell.user_ns["passes"] == 99


def test_a_failure_that_the_measurement_caused_ends_it_and_not_the_loop(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_blame(controller: StepController, error: BaseException) -> bool:
        controller.runner.cut_short()
        controller._leave()
        return True

    monkeypatch.setattr(StepController, "absorbs", takes_blame)
    cell = LOOP.replace("passes += 1", "passes += 1; 1 / (passes - 12)")
    result = shell.run_cell(f"%%launchscope{cell.replace('range(2)', 'range(9)')}")
    result.raise_error()
    assert shell.user_ns["after"] == 27
    assert "for 12 passes" in result.result.passes


def test_a_cell_is_measured_without_a_capture_on_request(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr(notebook, "_run", lambda shell, cell, *chosen: given.append(chosen))
    for line in ("", "--no-replay 7"):
        shell.run_cell(f"%%launchscope {line}\n1").raise_error()
    assert given == [(None, Schedule()), (7, Schedule(replay=0, verify=0))]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("ran = 1", "this cell has no loop outside a function, and was not run; move the loop"),
        ("def f():\n    for a in b: 1\nran = 1", "this cell has no loop outside a function"),
        ("for a in b:\n  for c in d: 1\n  for e in f: 1", "has loops in lines 2, 3, 4; name the "
         "line of its loop: %%launchscope 3"),
        ("for a in ():\n    1", "the loop ran out of items"),
        ("b = iter([1])\nfor a in b:\n    1", "the loop ran out of items"),
        ("ran = 1\nfor a in b\n    1", "line 3\n    for a in b\n              ^\nSyntaxError: "),
        ("ran = 1\nfor a in b:\n    await a", "SyntaxError: 'await' outside function"),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_measured_says_so_without_a_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], cell: str, said: str
) -> None:
    assert not shell.run_cell(f"%%launchscope\n{cell}").success
    shown = said_by(capsys.readouterr())
    assert said in shown
    assert shown.startswith("UsageError: ")
    assert "launchscope/" not in shown
    assert "ran" not in shell.user_ns
