"""Modules of the script: their mode, and names that stay the same over the steps."""

from __future__ import annotations

import weakref

from launchscope.runner.child.torch_types import Module


def in_training(module: Module) -> bool:
    """The mode of a module; True for what has none, such as a compiled function."""
    return bool(getattr(module, "training", True))


def is_weighted(module: Module) -> bool:
    """True if the module holds a parameter, at any depth."""
    return next(iter(module.parameters()), None) is not None


class ModuleKeys:
    """`Linear@0` for the first module that was asked about, and so on; keeps no module alive."""

    def __init__(self) -> None:
        self._modules: dict[str, weakref.ref[Module]] = {}
        self._keys: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()

    def key(self, module: Module) -> str:
        """Modules are told apart by identity; those that cannot be hashed, by their class."""
        try:
            known = self._keys.get(module)
        except TypeError:
            return type(module).__name__
        if known is None:
            known = f"{type(module).__name__}@{len(self._modules)}"
            self._keys[module] = known
            self._modules[known] = weakref.ref(module)
        return known

    def get(self, key: str) -> Module | None:
        """The module of that name; None if it is gone."""
        return self._modules.get(key, lambda: None)()

    def alive(self) -> list[Module]:
        return [module for ref in self._modules.values() if (module := ref()) is not None]

    def clear(self) -> None:
        self._modules.clear()
