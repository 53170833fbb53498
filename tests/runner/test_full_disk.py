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
from tests.runner.children import SMALL_STEP
from tests.runner.children import launchscope as profile

pytestmark = pytest.mark.child

FULL_DISK = """
import errno, resource
def no_room():  # as on a full disk: no file grows any more
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
"""
TRAIN = SMALL_STEP + FULL_DISK
LOOP = "for i in range(60): step()\n"


def test_a_script_is_stopped_where_no_result_can_be_written(tmp_path: Path) -> None:
    source = TRAIN + "step()\nno_room()\n" + LOOP + "sys.exit('not stopped')"
    said = profile(tmp_path, source)
    assert said.code == 3, said.err
    assert "Traceback" not in said.err, said.err
    assert said.error.startswith("the results could not be written to")
    assert "ulimit -f" in said.error
    assert "not stopped" not in said.err


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
