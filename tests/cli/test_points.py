"""The files of a run are there for as long as they are looked at, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.cli.axes import Combination
from launchscope.cli.points import Runner
from launchscope.cli.state import new_console
from launchscope.config import load_settings
from launchscope.model import Target

SCRIPT = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    loss = model(torch.randn(2, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_recording_stays_until_the_next_run_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    settings = load_settings({"warmup": 3, "inspect": 1})
    point = Combination({}, Target("script", str(script)), {})
    with Runner(settings, new_console()) as runner:
        first = runner.run(point).recording
        assert first is not None
        assert Path(first.directory).is_dir()
        second = runner.run(point).recording
        assert second is not None
        assert not Path(first.directory).exists()
        assert Path(second.directory).is_dir()
    assert not Path(second.directory).exists()
