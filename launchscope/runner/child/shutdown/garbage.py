"""Spares the end of a process the search for garbage, which takes most of it once torch is loaded.

Python looks through all objects several times as it ends, to finalize those that hold each other.
torch has some 300,000 of them. For the parent, the script is over only when that is done.
"""

from __future__ import annotations

import gc
import io
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec

from launchscope.runner.child.plain_values import class_attribute, entry, is_a
from launchscope.runner.child.shutdown.flush import flush_files

# Libraries whose objects leave nothing to be done at the end of a process.
_WITHOUT_FINALIZERS = sys.stdlib_module_names | {"torch", "triton", "numpy", "nvtx"}
# What is left in their code may have to run: `finally:`.
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedReader, io.FileIO)
_module_dict = vars(types.ModuleType)["__dict__"].__get__


def flush_and_leave_garbage() -> None:
    """Flush files as `flush_files` does. Objects that hold each other then stay at the end, if that
    makes no difference: nothing alive has a finalizer or suspended code."""
    kinds: list[type] = []
    flushed = flush_files(close_archives=False, on_class=kinds.append)
    if flushed and not (_other_extensions() or any(map(_may_finalize, kinds))):
        gc.freeze()


def _may_finalize(kind: type) -> bool:
    # Compared by identity: a metaclass may have an `__eq__` of its own.
    if any(kind is one for one in _FILES):
        return False
    suspended = any(kind is one for one in _SUSPENDED)
    return suspended or class_attribute(kind, "__del__") is not None


def _other_extensions() -> bool:
    """Whether a library in C is loaded whose objects may do something when they go."""
    for name, module in list(sys.modules.items()):
        spec = entry(_module_dict(module), "__spec__") if is_a(module, types.ModuleType) else None
        if type(spec) is ModuleSpec and type(spec.origin) is str and type(name) is str:
            known = name.partition(".")[0] in _WITHOUT_FINALIZERS
            if not known and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
                return True
    return False
