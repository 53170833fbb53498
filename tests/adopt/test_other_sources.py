"""`launchscope adopt --run`: the person's script with other contents of some files."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.adopt.recorded_runs import RecordedRuns
from launchscope.model import Target

pytestmark = pytest.mark.child

STEP = "from launchscope import graphed\n@graphed\ndef double(x):\n    return 2 * x\n"


def test_the_script_and_its_modules_run_with_other_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    files = {"train.py": "import torch, step\nprint(step.double(torch.ones(1)).item())\n"}
    files["step.py"] = STEP
    replaced = {}
    for name, text in files.items():
        Path(name).write_text("raise SystemExit('not replaced')\n")
        content = tmp_path / "patched" / name
        content.parent.mkdir(exist_ok=True)
        content.write_text(text)
        replaced[str(tmp_path / name)] = str(content)
    with RecordedRuns(lambda event: None) as runs:
        target = Target("script", "train.py")
        report = runs.run_patched(target, replaced, tmp_path / "run")
    assert report.exit_code == 0, capfd.readouterr().err
    assert capfd.readouterr().out == "2.0\n"
