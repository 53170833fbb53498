"""`%%launchscope` in cells that a real IPython runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from launchscope.model import Profile

pytestmark = pytest.mark.child  # the measurement asks git for the commit
LOOP = """
import torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
passes = 0
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
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = shells.InteractiveShell()
    shell.history_manager.enabled = False
    assert shell.run_cell("%load_ext launchscope").success
    return shell


def test_a_cell_gives_the_report_of_its_inner_loop_and_keeps_its_names(shell: Any) -> None:
    result = shell.run_cell(f"%%launchscope{LOOP}")
    result.raise_error()
    profile = result.result.profile
    assert isinstance(profile, Profile)
    assert (profile.value("device_ops_per_step") or 0) > 5
    formats, _ = shell.display_formatter.format(result.result)
    assert "cell:6" in formats["text/plain"]
    assert formats["text/html"].startswith("<pre>")
    assert "cell:6" in formats["text/html"]
    names = shell.user_ns
    assert names["after"] == names["passes"] > 6
    assert isinstance(names["epoch"], int)
    assert not {"rounds", "step"} & names.keys()


@pytest.mark.parametrize("at", [1, 12])
def test_a_cell_that_raises_shows_only_its_own_lines(
    shell: Any, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    broken = LOOP.replace("passes += 1", f"passes += 1; 1 / (passes - {at})")
    broken = broken.replace("passes = 0", "passes = 0; kept = 7")
    result = shell.run_cell(f"%%launchscope{broken}")
    assert type(result.error_in_exec) is ZeroDivisionError
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert f"1 / (passes - {at})" in shown
    assert shown.count("File ") == 1
    assert "launchscope/" not in shown
    assert "interactiveshell" not in shown
    assert shell.user_ns["kept"] == 7
    assert shell.user_ns["passes"] == at


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("ran = 1", "this cell has no loop, so it has no step to measure, and was not run"),
        ("for a in b: 1\nfor c in d: 1", "has loops in lines 1, 2; name the line of its loop"),
        ("for a in ():\n    1", "the loop ran out of items"),
        ("b = iter([1])\nfor a in b:\n    1", "the loop ran out of items"),
    ],
)
def test_a_cell_without_a_step_says_so_in_a_sentence(
    shell: Any, capsys: pytest.CaptureFixture[str], cell: str, said: str
) -> None:
    assert not shell.run_cell(f"%%launchscope\n{cell}").success
    captured = capsys.readouterr()
    shown = (captured.out + captured.err).strip()
    assert said in shown
    assert shown.count("\n") == 0
    assert "ran" not in shell.user_ns
