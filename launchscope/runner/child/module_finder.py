"""Notices that the script imports a module, and does something with it at once."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

# Python takes the frames of this file out of the traceback of a module that fails.
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


class ModuleFinder:
    """A meta path finder that calls `action(module)` once the module `name` has been imported; with
    `anywhere`, in whichever package it is. A module that `is_it` refuses only has the name: the
    finder goes on."""

    def __init__(
        self,
        name: str,
        is_it: Callable[[ModuleType], bool],
        action: Callable[[ModuleType], None],
        *,
        anywhere: bool = False,
    ):
        self._name = name
        self._is_it = is_it
        self._action = action
        self._anywhere = anywhere
        self._found = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if (name.rpartition(".")[2] if self._anywhere else name) != self._name:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:  # libraries look for torch long before they import it
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            if not self._found and self._is_it(module):
                self._found = True
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self)
                self._action(module)

        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
