"""Of two versions of a source tree, the one that a script imports from; and what it has loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from launchscope.runner.child.code_owner import Owner, is_ours, owner_of
from launchscope.runner.protocol.events import FilesLoaded
from launchscope.runner.protocol.folder import SourceTree

_SOURCES = ("", "src")  # folders of a repository that hold its packages


def import_from(root: str, instead: str) -> None:
    """From now on imports get the files below `instead` in place of those below `root`, whatever
    leads to these: PYTHONPATH, a .pth file, or the finder of an editable installation."""
    sys.path[:] = [_moved(entry, root, instead) or entry for entry in sys.path]
    sys.meta_path.insert(0, _OtherTree(root, instead))


def loaded_files(tree: SourceTree) -> FilesLoaded:
    """The files below the tree's root of all modules and libraries of this process, without those
    that are installed there."""
    root, roots = tree.root, [tree.root, *([tree.instead] if tree.instead else [])]
    files: dict[str, None] = {}
    installed: dict[str, None] = {}
    for name, file in module_files():
        path = os.path.realpath(file)
        if is_ours(file) or is_ours(path):
            continue
        if _below(path, root):
            files[path] = None
        elif "." in name or any(_below(path, other) for other in roots):
            continue
        elif any(_has_package(other, name) for other in roots):
            installed[name] = None
    files.update((path, None) for path in _mapped_libraries() if _below(path, root))
    return FilesLoaded(tuple(files), tuple(installed))


class _OtherTree:
    """A meta path finder that finds what those behind it find, in the other tree."""

    def __init__(self, root: str, instead: str) -> None:
        self._root, self._instead = root, instead

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (f.find_spec(name, path, target) for f in others if hasattr(f, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        moved = None if folders is None else [self._moved(folder) or folder for folder in folders]
        file = self._moved(spec.origin) if spec.has_location and spec.origin else None
        if file is not None:
            if not os.path.exists(file):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=moved
            )
        if folders is not None and moved != list(folders):  # a package without an __init__.py
            spec.submodule_search_locations = moved
        return spec

    def _moved(self, path: str) -> str | None:
        return _moved(path, self._root, self._instead)


def _moved(path: str, root: str, instead: str) -> str | None:
    """The path in the other tree; None for one that is not below `root`, or is installed."""
    real = os.path.realpath(path)
    if not _below(real, root) or _below(real, instead) or is_ours(os.path.join(real, "")):
        return None
    return os.path.join(instead, os.path.relpath(real, root))


def _below(path: str, root: str) -> bool:
    """Whether the real path is a file of this tree: not one of an environment in it."""
    if path != root and not path.startswith(os.path.join(root, "")):
        return False
    if owner_of(path) is Owner.LIBRARY:
        return False
    prefixes = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    inside = (prefix for prefix in prefixes if prefix.startswith(os.path.join(root, "")))
    return not any(path.startswith(os.path.join(prefix, "")) for prefix in inside)


def module_files() -> Iterator[tuple[str, str]]:
    """Each module with its file."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            file = vars(module).get("__file__")
            if type(file) is str and type(name) is str:
                yield name, file


def _mapped_libraries() -> Iterator[str]:
    """Shared libraries of this process; torch.ops.load_library leaves no module."""
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            path = os.fsdecode(line.rstrip(b"\n")).split(None, 5)[5:]
            if path and path[0].endswith(".so"):
                yield path[0]


def _has_package(root: str, name: str) -> bool:
    places = (os.path.join(root, folder, name) for folder in _SOURCES)
    return any(os.path.isfile(p + ".py") or os.path.isfile(p + "/__init__.py") for p in places)
