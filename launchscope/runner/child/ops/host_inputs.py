"""The tensors that the step's own lines copy from the host to the device.

With a graph these copies go straight to the inputs' fixed addresses, so the projection of the
iteration has to know them. That of an argument, `model(x.to(device))`, is over before the step
begins; its line shows that it belongs to the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FrameType
from typing import NamedTuple

from launchscope.model import HostInput, SourceLine, TensorShape
from launchscope.runner.child.source_lines import is_persons, short_path


class Upload(NamedTuple):
    """A copy to the device: the person's code that asked for it, and its line there."""

    code: CodeType
    line: int
    shape: TensorShape


def uploads_at(frame: FrameType | None, shapes: Iterable[TensorShape]) -> list[Upload]:
    while frame is not None and not is_persons(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return []
    return [Upload(frame.f_code, frame.f_lineno or 0, shape) for shape in shapes]


def host_inputs(
    uploads: Iterable[Upload], begins: SourceLine, lines: Iterable[SourceLine], frame: FrameType
) -> tuple[HostInput, ...]:
    """Of the uploads of an iteration, those of the step, which begins at one line and works at some
    others. `frame` is inside the step's last call."""
    around: FrameType | None = frame
    while around is not None and short_path(around.f_code.co_filename) != begins.file:
        around = around.f_back
    if around is None:
        return ()
    code = around.f_code
    worked = {where.line for where in (begins, *lines) if where.file == begins.file}
    own = worked & {line for _, _, line in code.co_lines()}
    return tuple(
        HostInput(upload.shape)
        for upload in uploads
        if upload.code is code and own and min(own) <= upload.line <= max(own)
    )
