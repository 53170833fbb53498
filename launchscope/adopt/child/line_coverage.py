"""The lines of one file that run in the main thread, and the functions that are called there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class LineCoverage:
    """From `begin` on, which is called while frames of the file may already run. `on_call` gets
    the frame of each function of Python that begins. The run is not timed: that costs."""

    def __init__(self, file: str):
        self._file = os.path.realpath(file)
        self._is_file: dict[str, bool] = {}
        self.lines: set[int] = set()
        self.on_call: Callable[[FrameType], None] | None = None

    def begin(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        sys.settrace(self._on_call)
        while frame is not None:
            if self._is_ours(frame):
                frame.f_trace = self._on_line
            frame = frame.f_back

    def end(self) -> None:
        sys.settrace(None)

    def _is_ours(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        if name not in self._is_file:
            self._is_file[name] = os.path.realpath(name) == self._file
        return self._is_file[name]

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.on_call is not None:
            self.on_call(frame)
        return self._on_line if self._is_ours(frame) else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.lines.add(frame.f_lineno)
        return self._on_line
