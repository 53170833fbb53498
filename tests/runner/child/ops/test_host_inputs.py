"""Which copies to the device are those of the step's own lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from launchscope.model import HostInput, SourceLine, TensorShape
from launchscope.runner.child.ops.host_inputs import Upload, host_inputs, upload_at
from launchscope.runner.child.source_lines import short_path

LOOP = """\
def helper():
    copy(1)
copy(2)
for i in range(1):
    copy(3)
    helper()
    work()
    copy(4)
    probe()
    copy(5)
"""


def test_copies_between_the_first_and_the_last_line_of_the_step_are_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP)
    uploads: list[Upload | None] = []
    found: list[tuple[HostInput, ...]] = []

    def copy(size: int) -> None:
        uploads.append(upload_at(sys._getframe(1), TensorShape((size,), "int64")))

    def line(number: int) -> SourceLine:
        return SourceLine(short_path(str(script)), number)

    def probe() -> None:
        seen = [upload for upload in uploads if upload is not None]
        lines = (line(7), line(9), line(2))  # the last of another function
        found.append(host_inputs(seen, line(5), lines, sys._getframe(1)))

    names: dict[str, Any] = {"copy": copy, "probe": probe, "work": lambda: None}
    exec(compile(LOOP, str(script), "exec"), names)
    assert [entry.tensor.dims for entry in found[0]] == [(3,), (4,)]


def test_without_the_file_on_the_stack_there_are_none() -> None:
    upload = upload_at(sys._getframe(), TensorShape((1,), "int64"))
    assert upload is not None
    assert host_inputs([upload], SourceLine("elsewhere.py", 1), (), sys._getframe()) == ()
