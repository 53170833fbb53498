"""A full disk is reported in one sentence, and the script sees no error from launchscope."""

from __future__ import annotations

from pathlib import Path

import pytest

import launchscope
from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.parent import collect
from launchscope.runner.parent.collect import Collected
from launchscope.runner.protocol import folder as child_folder

pytestmark = pytest.mark.child


def test_a_recording_that_cannot_be_written_is_a_measure_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(child_folder, "write_json", full)
    monkeypatch.setattr(collect, "write_json", full)
    with pytest.raises(MeasureError, match="No space left on device") as raised:
        launchscope.measure(lambda: None, schedule=Schedule(warmup=1, inspect=1))
    assert "TMPDIR" in str(raised.value.hint)
    with pytest.raises(OSError, match="No space"):
        Collected(tmp_path).write_recording(Target("script", "train.py", ()), Schedule(), 0)
