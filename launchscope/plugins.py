"""Finds plug-ins: the modules of a package that expose one constant, such as RULE or PASS."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

Plugin = TypeVar("Plugin")


def load_plugins(package: str, constant: str, kind: type[Plugin]) -> tuple[Plugin, ...]:
    """The `constant` of every module directly in `package` that has one, by module name."""
    found = (load_plugin(package, name, constant, kind) for name in _modules(package))
    return tuple(plugin for plugin in found if plugin is not None)


def load_plugin(package: str, module: str, constant: str, kind: type[Plugin]) -> Plugin | None:
    """The `constant` of that module in `package`; None without the module or the constant."""
    if module not in _modules(package):
        return None
    plugin = getattr(import_module(f"{package}.{module}"), constant, None)
    assert plugin is None or isinstance(plugin, kind), f"{module}.{constant} is no {kind.__name__}"
    return plugin


@cache
def _modules(package: str) -> tuple[str, ...]:
    return tuple(module.name for module in iter_modules(import_module(package).__path__))
