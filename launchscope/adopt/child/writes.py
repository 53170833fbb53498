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
# Which of the arguments are paths that change, and which the folders they are relative to. What a
# hard link leads to counts: a write to the link changes it.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),),
    "os.truncate": ((0, None),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),),
    "os.rename": ((0, 2), (1, 3)), "os.link": ((0, 2), (1, 3)), "os.symlink": ((1, 2),),
    "os.utime": ((0, 3),),
}  # fmt: skip

# Folders in a person's home in which programs keep what they can make again, or their settings.
_OF_PROGRAMS = {
    *(".cache", ".config", ".local", ".nv", ".triton", ".torch", ".matplotlib", ".huggingface"),
    *(".keras", ".ipython", ".jupyter", ".netrc", ".wandb", ".mlflow", ".neptune", ".clearml"),
}
_OF_LINKS = {"os.remove", "os.rename", "os.symlink", "os.rmdir"}  # they change a link itself


class WriteGuard:
    """Allows writes below `scratch` and to caches; `refused` gets any other path first."""

    def __init__(self, scratch: str, root: str, refused: Callable[[str], None]):
        home = os.path.realpath(os.path.expanduser("~"))
        self._scratch = os.path.join(os.path.realpath(scratch), "")
        self._root = os.path.join(os.path.realpath(root), "")
        self._home = os.path.join(home, "")
        named = (os.environ.get(n) for n in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR",
                 "TRITON_CACHE_DIR", "HF_HOME", "TORCH_HOME"))  # fmt: skip
        places = (*filter(None, named), "/dev", "/proc", "/sys", sys.prefix, sys.base_prefix)
        self._caches = tuple(os.path.join(os.path.realpath(place), "") for place in places)
        self._refused = refused
        self._checking = False

    def install(self) -> None:
        sys.addaudithook(self._on_event)

    def watch(self, torch: Torch) -> None:
        """What torch writes in C++, which Python does not report."""
        scripted = torch.jit.RecursiveScriptModule
        for owner, name in ((torch, "save"), (torch.jit, "save"), (scripted, "save")):
            wrap(owner, name, functools.partial(self._checking_file, 1, "f"))
        wrap(torch, "from_file", functools.partial(self._checking_file, 0, "filename"))

    def _checking_file(self, at: int, name: str, original: Function) -> Function:
        def checked(*args: Any, **kwargs: Any) -> Value:
            file = args[at] if len(args) > at else kwargs.get(name)
            maps_privately = name == "filename" and not (
                kwargs.get("shared") or args[1:2] == (True,)
            )
            if isinstance(file, str | os.PathLike) and not maps_privately:
                self.check(file)
            return original(*args, **kwargs)

        return checked

    def check(self, path: Any, *, follows: bool = True) -> None:
        """Raises PermissionError for a path that must not be written. `follows`: if it is a link,
        what that leads to is."""
        if isinstance(path, int) or path is None or self._checking:
            return
        self._checking = True
        try:
            full = os.path.abspath(os.fsdecode(path))
            folder = os.path.realpath(os.path.dirname(full))
            real = os.path.join(folder, os.path.basename(full))
            if os.path.islink(real) and real.startswith(self._scratch):
                _copy_in_place(real)
            elif follows:  # also /proc/self/fd/3
                real = os.path.realpath(real)
            if self._allows(real):
                return
            self._refused(real)
        finally:
            self._checking = False
        raise PermissionError(f"launchscope adopt lets no run write to {real}")

    def _allows(self, path: str) -> bool:
        if path.startswith(self._scratch):
            return True
        if path.startswith(self._root):
            return "__pycache__" in path
        inside = path.removeprefix(self._home) if path.startswith(self._home) else ""
        if inside.partition(os.sep)[0] in _OF_PROGRAMS:
            return True
        if path.startswith(self._caches) or "__pycache__" in path:
            return True
        try:
            kind = os.stat(path).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & _WRITES and not _is_folder(args):
                self.check(args[0])
        elif event == "sqlite3.connect":  # it writes in C
            name = os.fsdecode(args[0])
            if name not in ("", ":memory:") and "mode=memory" not in name:
                self.check(unquote(name.removeprefix("file:").partition("?")[0]))
        elif event in _CHANGES:
            for number, folder in _CHANGES[event]:
                path = args[number]
                if folder is not None and args[folder] >= 0:
                    path = _below(args[folder], path)
                if not (event == "os.mkdir" and os.path.isdir(path)):
                    self.check(path, follows=event not in _OF_LINKS)


def _below(folder: int, path: Any) -> str:
    """The path of a file in an open folder; `shutil.rmtree` removes files so."""
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


def _is_folder(args: tuple[Any, ...]) -> bool:
    """A file without a name, in a folder for temporary files."""
    return bool(args[2] & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1))


def _copy_in_place(link: str) -> None:
    """A file of its own in place of the link to the person's."""
    target = os.path.realpath(link)
    os.unlink(link)
    if os.path.isfile(target):
        shutil.copyfile(target, link)
