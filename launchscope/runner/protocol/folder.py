"""The folder through which a child reports to its parent: results and a status log.

A result is written whole or not at all; the status log is one JSON object a line.
Nothing ever travels over the script's own stdout or stderr. A full disk is told by the name of
a file, as renaming takes no room.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from launchscope.host import write_whole

STATUS_FILE = "status.jsonl"
SPEC_FILE = "spec.json"
_WRITABLE, _UNWRITABLE = "writable", "unwritable-"


def to_plain(value: Any) -> Any:
    """A dataclass as plain data; anything else unchanged."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def without_surrogates(value: Any) -> Any:
    """The same plain data with texts that are valid Unicode, for what is only ever shown.

    Python holds bytes of a path that it cannot decode as lone surrogates, which no JSON reader
    has to take. Bytes that are UTF-8 after all (a locale hid it) become their characters.
    """
    if isinstance(value, str):
        return value if value.isascii() else _valid(value)
    if isinstance(value, dict):
        return {without_surrogates(k): without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(entry) for entry in value]
    return value


def _valid(text: str) -> str:
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


class ResultFolder:
    """One folder, written by a child and read by the parent while the child runs."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._read_to = 0

    def write(self, name: str, value: Any) -> None:
        """Store `value` as NAME.json; readers see the old file or the new one, never half."""
        write_whole(self.path / f"{name}.json", json.dumps(to_plain(value)).encode())

    def read(self, name: str) -> Any:
        """What was stored under `name`, or None."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        return None

    def tell(self, kind: str, **details: Any) -> None:
        """Append one line to the status log."""
        line = json.dumps({"kind": kind, "at": time.time(), **details})
        with (self.path / STATUS_FILE).open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def told(self) -> list[dict[str, Any]]:
        """Complete status lines that were added since the last call."""
        try:
            with (self.path / STATUS_FILE).open("rb") as log:
                log.seek(self._read_to)
                fresh = log.read()
        except FileNotFoundError:
            return []
        complete = fresh.rfind(b"\n") + 1
        self._read_to += complete
        return [json.loads(line) for line in fresh[:complete].splitlines()]

    def make_for_child(self, spec: dict[str, Any]) -> None:
        """Make the folder, with what its child is asked to do in it."""
        self.path.mkdir(parents=True)
        (self.path / SPEC_FILE).write_text(json.dumps(spec), encoding="utf-8")
        (self.path / _WRITABLE).touch()

    def unwritable(self) -> OSError | None:
        """Why the child could not write all that it had to tell; None if it could."""
        if (self.path / _WRITABLE).exists():
            return None
        number = errno.ENOENT
        for entry in self.path.glob(f"{_UNWRITABLE}*"):
            number = int(entry.name.removeprefix(_UNWRITABLE))
        return OSError(number, os.strerror(number))


class ChildFolder(ResultFolder):
    """The child's end of it: what cannot be written is no error of the script's.

    After the first such failure `lost` has it, and nothing more is written: a log with holes
    would tell of another run than the one that was.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path)
        self.lost: OSError | None = None

    def write(self, name: str, value: Any) -> None:
        """Store `value` as NAME.json, if that can be."""
        if self.lost is None:
            with self._losing():
                super().write(name, value)

    def tell(self, kind: str, **details: Any) -> None:
        """Append one line to the status log, if that can be."""
        if self.lost is None:
            with self._losing():
                super().tell(kind, **details)

    def failed(self) -> bool:
        """Whether something could not be written."""
        return self.lost is not None

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.lost = error
            with contextlib.suppress(OSError):
                told = f"{_UNWRITABLE}{error.errno or errno.EIO}"
                os.rename(self.path / _WRITABLE, self.path / told)
