"""What a script hands to files, to trackers of experiments, to progress bars and to `logging`, one
call after another."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO

from launchscope.adopt.child.digests import Digests
from launchscope.adopt.child.held import HeldWalk
from launchscope.adopt.observation import HeldValue
from launchscope.runner.child.facts.imports import ImportWatch
from launchscope.runner.child.facts.patching import put_in_place
from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_MOST_FILES, _MOST_CALLS = 40, 1000  # that are looked at, of one name
# Modules; their class, or "" for functions of the module; and what logs or shows a value.
_TRACKERS = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", ("add_scalar", "add_scalars")),
    ("tensorboardX.writer", "SummaryWriter", ("add_scalar", "add_scalars")),
    ("wandb.sdk.wandb_run", "Run", ("log",)),
    ("mlflow.tracking.fluent", "", ("log_metric", "log_metrics")),
    ("tqdm.std", "tqdm", ("set_postfix", "set_postfix_str", "set_description")),
)


class Outgoing:
    """`quietly` carries out what it gets as work that is not the script's. Values are noted while
    they are `wanted`, and messages of `logging` go to `log`, a file, for the whole run."""

    def __init__(
        self,
        torch: Torch,
        digests: Digests,
        quietly: Callable[[Function], None],
        wanted: Callable[[], bool],
        log: Path,
    ):
        self._torch, self._digests, self._quietly = torch, digests, quietly
        self._wanted, self._log_path = wanted, log
        self._messages: IO[str] | None = None
        self._values: dict[str, HeldValue] = {}
        # Of the calls so far, and since the last look, by what they write to.
        self._numbers: Counter[str] = Counter()
        self._since: Counter[str] = Counter()

    def taken(self) -> dict[str, HeldValue]:
        """What was handed out since the last call."""
        found, self._values = self._values, {}
        self._since.clear()
        return found

    def install(self) -> None:
        """`torch.save` is the caller's."""

        def savez(file: Value, *args: Value, **kwds: Value) -> None:
            self.save([args, kwds], file)

        self._around(pickle, "dump", lambda value, file, *args, **kwargs: self.save(value, file))
        numpy = sys.modules.get("numpy")  # torch has imported it, if it is there
        if numpy is not None:
            self._around(numpy, "save", lambda file, arr, *args, **kwargs: self.save(arr, file))
            self._around(numpy, "savez", savez)
            self._around(numpy, "savez_compressed", savez)
        self._messages = self._log_path.open("w", errors="replace", buffering=1)
        handle = logging.Logger.handle

        of_all = {*vars(logging.makeLogRecord({})), "message", "asctime"}

        @functools.wraps(handle)
        def handled(logger: logging.Logger, record: logging.LogRecord) -> None:
            handle(logger, record)  # whose filters may add to it
            if is_persons(record.pathname):
                self._quietly(functools.partial(self._note_message, record, of_all))

        put_in_place(logging.Logger, "handle", handled)
        for module, owner, methods in _TRACKERS:
            watch = functools.partial(self._watch_tracker, owner, methods)
            if type(known := sys.modules.get(module)) is ModuleType:
                watch(known)
            else:
                ImportWatch(module, functools.partial(_has, owner), watch).begin()

    def save(self, value: Value, file: Value) -> None:
        """The script writes a value to a file, of this name or an open one."""
        name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "")
        named = os.path.basename(os.fsdecode(name)) if isinstance(name, str | os.PathLike) else ""
        self._note(f"file {named}" if named else "a file without a name", value, _MOST_FILES)

    def _note_message(self, record: logging.LogRecord, of_all: set[str]) -> None:
        """It is compared as what the script prints is, with what the script adds to the record."""
        assert self._messages is not None
        with contextlib.suppress(Exception):  # which `logging` reports as it does without us
            added = [
                f" {name} {value}"
                for name, value in vars(record).items()
                if name not in of_all and isinstance(value, str | int | float)
            ]
            line = f"{record.levelname} {record.getMessage()}{''.join(added)}"
            self._messages.write(f"{line}\n")

    def _watch_tracker(self, owner: str, methods: tuple[str, ...], module: ModuleType) -> None:
        place = getattr(module, owner, None) if owner else module
        for method in methods:
            if getattr(place, method, None) is not None:
                self._around(place, method, functools.partial(self._log, method, bool(owner)))

    def _log(self, method: str, bound: bool, *args: Value, **kwargs: Value) -> None:
        self._note(f"{method}()", [args[bound:], kwargs], _MOST_CALLS)

    def _note(self, name: str, value: Value, most: int) -> None:
        self._numbers[name] += 1
        self._since[name] += 1
        if self._since[name] > most or not self._wanted():
            return
        path = f"{name} #{self._numbers[name]}"

        def note() -> None:
            walk = HeldWalk(self._torch, self._digests)
            walk.add_value(path, value)
            self._values |= walk.found(0).values

        self._quietly(note)

    def _around(self, owner: Value, name: str, note: Function) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def noted(*args: Value, **kwargs: Value) -> Value:
            result = original(*args, **kwargs)  # raises for arguments that `note` would not take
            if is_persons(sys._getframe(1).f_code.co_filename):
                note(*args, **kwargs)
            return result

        put_in_place(owner, name, noted)


def _has(owner: str, module: ModuleType) -> bool:
    return not owner or isinstance(getattr(module, owner, None), type)
