"""The folder through which a child reports to its parent: results and an event log.

A result is one JSON file, written whole or not at all. The event log has one JSON object per
line. Nothing travels over the script's own stdout or stderr.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launchscope.host import write_whole
from launchscope.runner.protocol.events import Event
from launchscope.runner.protocol.plain import to_plain

PLAN_FILE = "plan.json"
EVENTS_FILE = "events.jsonl"
# The child renames the first to the second and an error number when it cannot write: on a full
# disk a file can still be renamed.
WRITABLE, UNWRITABLE = "writable", "unwritable-"


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; readers see the old file or the new one, never half of it."""
    write_whole(path, json.dumps(to_plain(value)).encode())


class ChildFolder:
    """The child's end. What cannot be written is no error of the script.

    After the first failure `error` is set and nothing more is written: a log with holes would
    describe another run.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.error: OSError | None = None

    def write(self, name: str, value: Any) -> None:
        """Store `value` as NAME.json."""
        if self.error is None:
            with self._keeping_errors():
                write_json(self.path / f"{name}.json", value)

    def emit(self, event: Event) -> None:
        """Append an event to the log."""
        if self.error is None:
            line = json.dumps({"event": type(event).__name__, **to_plain(event)})
            with self._keeping_errors(), (self.path / EVENTS_FILE).open("a") as log:
                log.write(line + "\n")

    @contextlib.contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            with contextlib.suppress(OSError):
                marker = f"{UNWRITABLE}{error.errno or errno.EIO}"
                os.rename(self.path / WRITABLE, self.path / marker)
