"""Names of modules that stay the same over the steps, without keeping any module alive."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["ModuleKeys"]


class ModuleKeys:
    """`Linear@0` for the first module that was asked about, and so on."""

    def __init__(self) -> None:
        self._modules: dict[str, weakref.ref[Any]] = {}
        self._keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def key(self, module: Any) -> str:
        """Modules by identity; those that cannot be told apart by their class."""
        try:
            known = self._keys.get(module)
        except TypeError:  # an unhashable module
            return type(module).__name__
        if known is None:
            known = f"{type(module).__name__}@{len(self._modules)}"
            self._keys[module] = known
            self._modules[known] = weakref.ref(module)
        return known

    def get(self, key: str) -> Any:
        """The module of that name; None if there is none any more."""
        return self._modules.get(key, lambda: None)()

    def alive(self) -> list[Any]:
        return [module for ref in self._modules.values() if (module := ref()) is not None]

    def clear(self) -> None:
        self._modules.clear()
