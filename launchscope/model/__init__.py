"""The values that travel between layers.

Everything here is frozen, holds plain data, and survives a round trip through JSON.
Durations carry their unit in the name. None means "not measured".

What the process of a person's script makes are dataclasses of the standard library. The others are
msgspec's, which is not in that process: their modules are imported when a name of theirs is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# ruff: noqa: F403 - every public name of these modules is one of the model's
from launchscope.model.optimizers import *
from launchscope.model.reason import *
from launchscope.model.recording import *
from launchscope.model.target import *
from launchscope.model.watch import *

if TYPE_CHECKING:
    from launchscope.model.adoption import *
    from launchscope.model.comparison import *
    from launchscope.model.gate import *
    from launchscope.model.profile import *
    from launchscope.model.ranks import *
    from launchscope.model.timeline import *

_OF_THE_PARENT = ("timeline", "ranks", "profile", "comparison", "gate", "adoption")


def __getattr__(name: str) -> object:
    for module in _OF_THE_PARENT:
        found = vars(import_module(f"launchscope.model.{module}"))
        if name in found:
            globals()[name] = found[name]
            return found[name]
    raise AttributeError(f"module 'launchscope.model' has no attribute {name!r}")
