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
from typing import Any

from launchscope.runner.child.shutdown.flush import flush_files
from launchscope.runner.child.source_lines import is_machinery

# Libraries whose objects leave nothing to be done at the end of a process.
_WITHOUT_FINALIZERS = sys.stdlib_module_names | {"torch", "triton", "numpy", "nvtx"}
# What is left in their code may have to run: `finally:`.
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_CODES = ("gi_code", "cr_code", "ag_code")
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedReader, io.FileIO)


def flush_and_leave_garbage() -> None:
    """Flush files as `flush_files` does. Objects that hold each other then stay at the end, if that
    makes no difference: nothing alive has a finalizer or suspended code."""
    kinds: list[type] = []
    suspended: list[Any] = []
    flushed = flush_files(
        close_archives=False, on_class=kinds.append, others=_SUSPENDED, on_other=suspended.append
    )
    finalize = any(map(_may_finalize, kinds)) or any(map(_may_go_on, suspended))
    if flushed and not (finalize or _other_extensions()):
        gc.freeze()


def _may_finalize(kind: type) -> bool:
    return kind not in (*_FILES, *_SUSPENDED) and hasattr(kind, "__del__")


def _may_go_on(suspended: Any) -> bool:
    """Whether a generator or a coroutine ends in code of another than Python, torch and us. What
    those put back ends with the process."""
    code = next(filter(None, (getattr(suspended, name, None) for name in _CODES)), None)
    if code is None or code.co_filename.startswith("<"):
        return True
    return not is_machinery(code.co_filename)


def _other_extensions() -> bool:
    """Whether a library in C is loaded whose objects may do something when they go."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if type(spec) is ModuleSpec and type(spec.origin) is str and type(name) is str:
            known = name.partition(".")[0] in _WITHOUT_FINALIZERS
            if not known and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
                return True
    return False
