"""Which copies to the device are those of the step's own lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from launchscope.model import HostInput, SourceLine, TensorShape
from launchscope.runner.child.ops.host_inputs import Upload, host_inputs, uploads_at
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
    uploads: list[Upload] = []
    found: list[tuple[HostInput, ...]] = []

    def copy(size: int) -> None:
        uploads.extend(uploads_at(sys._getframe(1), [TensorShape((size,), "int64")]))

    def line(number: int) -> SourceLine:
        return SourceLine(short_path(str(script)), number)

    def probe() -> None:
        lines = (line(7), line(9), line(2))  # the last of another function
        found.append(host_inputs(uploads, line(5), lines, sys._getframe(1)))

    names: dict[str, Any] = {"copy": copy, "probe": probe, "work": lambda: None}
    exec(compile(LOOP, str(script), "exec"), names)
    assert [entry.tensor.dims for entry in found[0]] == [(3,), (4,)]


def test_without_the_file_on_the_stack_there_are_none() -> None:
    uploads = uploads_at(sys._getframe(), [TensorShape((1,), "int64")])
    assert len(uploads) == 1
    assert host_inputs(uploads, SourceLine("elsewhere.py", 1), (), sys._getframe()) == ()
