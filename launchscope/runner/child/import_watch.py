"""Notices that the script imports a module, and does something with it at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from launchscope.runner.child.hooks.patches import put_in_place

# Python takes the frames of this file out of the traceback of a module that fails.
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
# What the loaders of a script are made of. Its finders, which may find the module without any other
# being asked, and count how often they are asked themselves, know nothing of a watch.
_LOADER = next(kind for kind in SourceFileLoader.__mro__ if "exec_module" in vars(kind))


class ImportWatch:
    """Calls `action(module)` once the module `name` has been imported; with `anywhere`, in any
    package. A module that `is_it` refuses only has the name: the watch goes on."""

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
        self._over = False

    def begin(self) -> None:
        execute = vars(_LOADER)["exec_module"]

        def exec_module(loader: Any, module: ModuleType) -> None:
            execute(loader, module)
            if not self._over and self._is_named(module) and self._is_it(module):
                self.end()
                self._action(module)

        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
        self._take_back = put_in_place(_LOADER, "exec_module", exec_module)

    def end(self) -> None:
        self._over = True
        self._take_back()

    def _is_named(self, module: ModuleType) -> bool:
        name = getattr(module, "__name__", None)
        if self._anywhere and type(name) is str:
            name = name.rpartition(".")[2]
        return type(name) is str and name == self._name
