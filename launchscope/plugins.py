"""Finds plug-ins: the modules of a package that expose one constant, such as RULE or PASS."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

Plugin = TypeVar("Plugin")


def load_plugins(package: str, constant: str, kind: type[Plugin]) -> tuple[Plugin, ...]:
    """The `constant` of every module directly in `package` that has one, by module name."""
    found = []
    for module in iter_modules(import_module(package).__path__):
        plugin = getattr(import_module(f"{package}.{module.name}"), constant, None)
        if plugin is not None:
            assert isinstance(plugin, kind), f"{module.name}.{constant} is no {kind.__name__}"
            found.append(plugin)
    return tuple(found)
