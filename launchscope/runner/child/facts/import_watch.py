"""Notices that the script imports a module, and does something with it at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def spec_behind(finder: object, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What the meta path finders behind this one find."""
    others = sys.meta_path[sys.meta_path.index(finder) + 1 :]  # type: ignore[arg-type]
    found = (other.find_spec(name, path) for other in others if hasattr(other, "find_spec"))
    return next((spec for spec in found if spec is not None), None)


class ImportWatch:
    """A meta path finder that finds what those behind it find, and calls `action(module)` once the
    module `name` has been imported; with `anywhere`, in any package. A module that `is_it` refuses
    only has the name: the watch goes on."""

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

    def begin(self) -> None:
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if (name.rpartition(".")[2] if self._anywhere else name) != self._name:
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
