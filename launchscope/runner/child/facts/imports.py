"""Imports of the script: the choice between two versions of a source tree, and actions that run
once a module is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from launchscope.runner.child.facts.source_lines import is_ours, is_persons
from launchscope.runner.protocol.events import FilesLoaded
from launchscope.runner.protocol.folder import SourceTree

_SOURCES = ("", "src")  # folders of a repository that hold its packages


def import_from(root: str, instead: str) -> None:
    """From now on imports get the files below `instead` in place of those below `root`, whatever
    leads to these: PYTHONPATH, a .pth file, or the finder of an editable installation."""
    finder = _OtherTree(root, instead)
    sys.path[:] = map(finder.moved, sys.path)
    sys.meta_path.insert(0, finder)


def loaded_files(tree: SourceTree) -> FilesLoaded:
    """The files below the tree's root of all modules of this process, without those that are
    installed there."""
    roots = [tree.root, *([tree.instead] if tree.instead else [])]
    modules = [(name, os.path.realpath(file)) for name, file in _module_files()]
    below = dict.fromkeys(path for _, path in modules if _below(path, tree.root))
    installed = [
        name
        for name, path in modules
        if "." not in name
        and not (is_ours(path) or any(_below(path, root) for root in roots))
        and any(_has_package(root, name) for root in roots)
    ]
    return FilesLoaded(tuple(below), tuple(installed))


class _OtherTree:
    """A meta path finder that finds what those behind it find, in the other tree."""

    def __init__(self, root: str, instead: str) -> None:
        self._root, self._instead = root, instead

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if (spec := spec_behind(self, name, path)) is None:
            return None
        folders = [self.moved(folder) for folder in spec.submodule_search_locations or ()] or None
        file = self.moved(spec.origin) if spec.has_location and spec.origin else spec.origin
        if file is None or file == spec.origin:
            spec.submodule_search_locations = folders  # of a package without an __init__.py
            return spec
        if not os.path.exists(file):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importlib.util.spec_from_file_location(
            name, file, submodule_search_locations=folders
        )

    def moved(self, path: str) -> str:
        """The path in the other tree; the same for one that is not below the root."""
        real = os.path.realpath(path)
        if not _below(real, self._root) or _is_inside(real, self._instead):
            return path
        return os.path.join(self._instead, os.path.relpath(real, self._root))


def _below(path: str, root: str) -> bool:
    """Whether the real path is a file of this tree: not one of an environment in it."""
    return _is_inside(path, root) and is_persons(path)


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _module_files() -> Iterator[tuple[str, str]]:
    """Each module with its file."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str):
            yield name, file


def _has_package(root: str, name: str) -> bool:
    places = (os.path.join(root, folder, name) for folder in _SOURCES)
    return any(os.path.isfile(p + ".py") or os.path.isfile(p + "/__init__.py") for p in places)


def spec_behind(finder: object, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What the meta path finders behind this one find."""
    others = sys.meta_path[sys.meta_path.index(finder) + 1 :]  # type: ignore[arg-type]
    found = (other.find_spec(name, path) for other in others if hasattr(other, "find_spec"))
    return next((spec for spec in found if spec is not None), None)


class ImportWatch:
    """A meta path finder that finds what those behind it find, and calls `action(module)` once the
    module `name` has been imported. One that `is_it` refuses only has the name: the watch goes
    on."""

    def __init__(
        self,
        name: str,
        action: Callable[[ModuleType], None],
        is_it: Callable[[ModuleType], bool] = lambda module: True,
    ):
        self._name, self._action, self._is_it = name, action, is_it
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        spec = spec_behind(self, name, path)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path and self._is_it(module):
                self.end()
                self._action(module)

        loader.exec_module = exec_module
