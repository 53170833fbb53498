"""The parent's end of the folder of one run: its plan, its events and its results."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import msgspec

from launchscope.runner.protocol.events import EVENT_TYPES, Event
from launchscope.runner.protocol.folder import EVENTS_FILE, PLAN_FILE, UNWRITABLE, WRITABLE, Plan
from launchscope.visible import inert_json

T = TypeVar("T")


class RunFolder:
    """Read while the child runs and after it."""

    def __init__(self, path: Path):
        self.path = path
        self._read_to = 0

    def create(self, plan: Plan) -> None:
        """Make the folder, with what the child is asked to do."""
        self.path.mkdir(parents=True, exist_ok=True)
        # Not write_json: the child needs every byte of an undecodable path.
        (self.path / PLAN_FILE).write_bytes(inert_json(json.dumps(asdict(plan)).encode()))
        (self.path / WRITABLE).touch()

    def remove_plan(self) -> None:
        """The folder may be kept, and arguments of the script may be secret."""
        with contextlib.suppress(OSError):
            (self.path / PLAN_FILE).unlink()

    @property
    def stop_file(self) -> str:
        """What tells the child that all ranks are measured."""
        return os.fspath(self.path / "stop")

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the child is stopped by a signal
            Path(self.stop_file).touch()

    def events(self) -> list[Event]:
        """The events that were added since the last call; damaged lines are left out."""
        try:
            with (self.path / EVENTS_FILE).open("rb") as log:
                log.seek(self._read_to)
                fresh = log.read()
        except FileNotFoundError:
            return []
        complete = fresh.rfind(b"\n") + 1
        self._read_to += complete
        found = map(_decode, fresh[:complete].splitlines())
        return [event for event in found if event is not None]

    def read(self, name: str, kind: type[T]) -> T | None:
        """The value stored as NAME.json; None if there is none. Raises msgspec.MsgspecError for one
        that is not of this type."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode((self.path / f"{name}.json").read_bytes(), type=kind)
        return None

    def write_error(self) -> OSError | None:
        """Why the child could not write all that it had to report; None if it could."""
        if (self.path / WRITABLE).exists():
            return None
        number = errno.ENOENT
        for entry in self.path.glob(f"{UNWRITABLE}*"):
            number = int(entry.name.removeprefix(UNWRITABLE))
        return OSError(number, os.strerror(number))


def _decode(line: bytes) -> Event | None:
    """The event of one line; None for a line that a dying child left damaged."""
    try:
        kind = EVENT_TYPES[str(msgspec.json.decode(line, type=dict[str, object])["event"])]
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        return None
