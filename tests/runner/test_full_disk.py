"""A full disk is reported in one sentence, and the script sees no error from launchscope."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import launchscope
from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.child.capture.kineto_session import require_whole
from launchscope.runner.parent import collect
from launchscope.runner.parent.collect import Collected
from launchscope.runner.protocol import folder as child_folder
from tests.runner.children import SMALL_STEP, Said
from tests.runner.children import launchscope as profile

pytestmark = pytest.mark.child

FULL_DISK = """
import errno, resource
def no_room():  # as on a full disk: no file grows any more
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
"""
TRAIN = SMALL_STEP + FULL_DISK
LOOP = "for i in range(60): step()\n"
NO_ROOM = "the results could not be written to"


def sentence(said: Said) -> str:
    """What is said at the end, and never a trace of how it came about."""
    assert "Traceback" not in said.err, said.err
    return said.error


def test_a_script_is_stopped_where_no_result_can_be_written(tmp_path: Path) -> None:
    source = TRAIN + "step()\nno_room()\n" + LOOP + "sys.exit('not stopped')"
    said = profile(tmp_path, source)
    assert said.code == 3, said.err
    assert sentence(said).startswith(NO_ROOM)
    assert "ulimit -f" in said.error
    assert "not stopped" not in said.err


def test_a_script_that_fails_on_a_full_disk_keeps_its_exit_code(tmp_path: Path) -> None:
    source = TRAIN + "no_room()\nstep()\nsys.exit(7)"
    said = profile(tmp_path, source)
    assert said.code == 7, said.err
    assert "the script ended with exit code 7" in said.error
    assert "hint: " + NO_ROOM in re.sub(r"\s+", " ", said.error)


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


def test_a_truncated_trace_is_removed(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    whole.write_text('{"traceEvents": [\n],\n"displayTimeUnit": "ms"\n}\n')
    cut.write_text('{"traceEvents": [\n{"ph": "X", "na')
    require_whole(whole)
    for path in (cut, tmp_path / "none.json"):
        with pytest.raises(OSError, match="not be written whole"):
            require_whole(path)
    assert (whole.exists(), cut.exists()) == (True, False)
