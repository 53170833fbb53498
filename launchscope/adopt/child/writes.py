"""Keeps a run that is only compared from writing over a person's results.

Python reports what opens, makes, moves or removes a file before it does so. Programs that a script
starts, and libraries that write without Python, report nothing.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_WITHOUT_NAME = getattr(os, "O_TMPFILE", os.O_DIRECTORY)  # in a folder for temporary files
# Which arguments of an audit event are paths that change, and which the open folders that these are
# relative to; and whether a link itself changes, and not what it leads to.
_CHANGES: dict[str, tuple[tuple[tuple[int, int | None], ...], bool]] = {
    "os.remove": (((0, 1),), True), "os.rmdir": (((0, 1),), True),
    "os.rename": (((0, 2), (1, 3)), True), "os.symlink": (((1, 2),), True),
    "os.link": (((0, 2), (1, 3)), False), "os.mkdir": (((0, 2),), False),
    "os.truncate": (((0, None),), False), "os.chmod": (((0, 2),), False),
    "os.chown": (((0, 3),), False), "os.utime": (((0, 3),), False),
}  # fmt: skip
_CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "TORCH_HOME")
# Folders in a person's home in which programs keep what they can make again, or their settings.
_OF_PROGRAMS = {
    *(".cache", ".config", ".local", ".nv", ".triton", ".torch", ".matplotlib", ".huggingface"),
    *(".keras", ".ipython", ".jupyter", ".netrc", ".wandb", ".mlflow", ".neptune", ".clearml"),
}


class WriteGuard:
    """Allows writes below `scratch` and to caches; `refused` gets any other path first."""

    def __init__(self, scratch: str, root: str, refused: Callable[[str], None]):
        self._scratch, self._root = _folder(scratch), _folder(root)
        self._home = _folder(os.path.expanduser("~"))
        named = filter(None, map(os.environ.get, _CACHES))
        places = (*named, "/dev", "/proc", "/sys", sys.prefix, sys.base_prefix)
        self._caches = tuple(map(_folder, places))
        self._refused = refused
        self._checking = False

    def install(self) -> None:
        sys.addaudithook(self._on_event)

    def watch(self, torch: Torch) -> None:
        """What torch writes in C++, which Python does not report."""
        for owner in (torch, torch.jit, torch.jit.RecursiveScriptModule):
            wrap(owner, "save", functools.partial(self._checking_file, "f"))
        wrap(torch, "from_file", functools.partial(self._checking_file, "filename"))

    def _checking_file(self, name: str, original: Function) -> Function:
        position = 1 if name == "f" else 0  # behind the object, or `self`

        def checked(*args: Any, **kwargs: Any) -> Value:
            file = args[position] if len(args) > position else kwargs.get(name)
            shares = name == "f" or kwargs.get("shared") or args[1:2] == (True,)
            if isinstance(file, str | os.PathLike) and shares:
                self.check(file)
            return original(*args, **kwargs)

        return checked

    def check(self, path: Any, *, is_link: bool = False) -> None:
        """Raises PermissionError for a path that must not be written. `is_link`: if it is a link,
        it changes itself."""
        if isinstance(path, int) or path is None or self._checking:
            return
        self._checking = True
        try:
            full = os.path.abspath(os.fsdecode(path))
            real = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
            if os.path.islink(real) and real.startswith(self._scratch):
                _copy_in_place(real)
            elif not is_link:  # also /proc/self/fd/3
                real = os.path.realpath(real)
            if self._allows(real):
                return
            self._refused(real)
        finally:
            self._checking = False
        raise PermissionError(f"launchscope adopt lets no run write to {real}")

    def _allows(self, path: str) -> bool:
        if path.startswith(self._scratch) or "__pycache__" in path:
            return True
        if path.startswith(self._root):
            return False
        below = path.removeprefix(self._home) if path.startswith(self._home) else ""
        if below.partition(os.sep)[0] in _OF_PROGRAMS or path.startswith(self._caches):
            return True
        try:
            kind = os.stat(path).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & _WRITES and flags & _WITHOUT_NAME != _WITHOUT_NAME:
                self.check(args[0])
        elif event == "sqlite3.connect":  # it writes in C
            name = os.fsdecode(args[0])
            if name not in ("", ":memory:") and "mode=memory" not in name:
                self.check(unquote(name.removeprefix("file:").partition("?")[0]))
        elif event in _CHANGES:
            paths, is_link = _CHANGES[event]
            for number, folder in paths:
                path = args[number]
                if folder is not None and args[folder] >= 0:  # `shutil.rmtree` removes files so
                    opened = os.readlink(f"/proc/self/fd/{args[folder]}")
                    path = os.path.join(opened, os.fsdecode(path))
                if not (event == "os.mkdir" and os.path.isdir(path)):
                    self.check(path, is_link=is_link)


def _folder(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")


def _copy_in_place(link: str) -> None:
    """A file of its own in place of the link to the person's."""
    target = os.path.realpath(link)
    os.unlink(link)
    if os.path.isfile(target):
        shutil.copyfile(target, link)
