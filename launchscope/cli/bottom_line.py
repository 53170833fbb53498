"""The last row of a terminal, kept out of the reach of what a script prints.

A script writes to the terminal itself, so nobody else knows where its output ends. A terminal can
scroll all rows but the last (DECSTBM): the script's output stays in the rows above, in its own
lines and unaltered, and the size of the window is what it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from types import FrameType
from typing import TextIO

from launchscope.visible import in_encoding, is_utf_8

_SAVE, _RESTORE, _ALL_ROWS = "\0337", "\0338", "\033[r"
# Down and up again: scrolls the screen by one row if the cursor is in the last one.
_MAKE_ROOM = "\033D\033[A"
_DIM, _PLAIN = "\033[2m", "\033[0m"
_FEWEST_ROWS = 5


class BottomLine:
    """One line of text; every write is one call, which a terminal does not mix with others."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]):
        known = environ.get("TERM", "") not in ("", "dumb", "unknown")
        self._terminal = stream.fileno() if known and stream.isatty() else -1
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._style = ("", "") if environ.get("NO_COLOR") else (_DIM, _PLAIN)
        self._shown: tuple[str, os.terminal_size] | None = None

    def show(self, text: str) -> None:
        """Replace the line, where there is room for one; nothing in a background job."""
        size = self._size()
        if size is None or size.lines < _FEWEST_ROWS or self._shown == (text, size):
            return
        if not self._in_foreground():
            return
        from rich.cells import cell_len, set_cell_size  # here, because most commands need no row

        line = text = in_encoding(text, self._encoding)
        if cell_len(text) >= size.columns:  # some terminals would wrap into the script's rows
            ellipsis = "…" if is_utf_8(self._encoding) else "~"
            line = f"{set_cell_size(text, size.columns - 2)}{ellipsis}"
        line = line.join(self._style)
        if self._shown is None:
            self._on_stop(self._stop)
        self._shown = text, size
        # All of it each time: whatever the script did to the terminal, the row is free afterwards.
        self._write(
            f"{_SAVE}{_ALL_ROWS}{_RESTORE}{_MAKE_ROOM}"
            f"{_SAVE}\033[1;{size.lines - 1}r\033[{size.lines}H\033[2K{line}{_RESTORE}"
        )

    def close(self) -> None:
        """Give the row back, empty."""
        if self._shown is not None:
            rows = (self._size() or self._shown[1]).lines
            self._shown = None
            self._write(f"{_SAVE}{_ALL_ROWS}\033[{rows}H\033[2K{_RESTORE}")
            self._on_stop(signal.SIG_DFL)

    def begin_line(self) -> None:
        """Move to the beginning of a line: of the next one, if the current one has text. As many
        blanks as there are columns but one wrap only in a line that has begun."""
        size = self._size()
        if size is not None:
            self._write(f"{' ' * (size.columns - 1)}\r\033[K")

    def _size(self) -> os.terminal_size | None:
        with contextlib.suppress(OSError):
            if self._terminal >= 0 and (size := os.get_terminal_size(self._terminal)).columns > 1:
                return size
        return None

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # it is not the terminal that controls us
            return True

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(self._terminal, text.encode(self._encoding))

    def _on_stop(self, action: signal._HANDLER) -> None:
        """Ctrl-Z. Whoever ignores it has a reason."""
        with contextlib.suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
                signal.signal(signal.SIGTSTP, action)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.close()
        os.kill(os.getpid(), number)
