"""NVTX ranges in the domain `launchscope`: one per pass, one per step.

Any NVTX consumer that is attached to the process sees them. Without one, or without the nvtx
package in the script's interpreter, there are none.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any

_found: ModuleSpec | None = None


def find_nvtx(lent: str) -> None:
    """Find the nvtx package before the script runs; `lent` is the folder of launchscope's own.

    It is only imported once torch is there, because it imports numpy.
    """
    global _found
    _found = importlib.util.find_spec("nvtx")
    if _found is None and lent:
        _found = importlib.util.spec_from_file_location(
            "nvtx", os.path.join(lent, "__init__.py"), submodule_search_locations=[lent]
        )


def _nvtx() -> Any:
    """The package that was found; None if there is none, or the script has a file of this name."""
    now = importlib.util.find_spec("nvtx")
    if _found is None or _found.loader is None or (now and now.origin != _found.origin):
        return None
    if "nvtx" in sys.modules:
        return sys.modules["nvtx"]
    sys.modules["nvtx"] = module = importlib.util.module_from_spec(_found)
    try:
        _found.loader.exec_module(module)
    except ImportError:
        del sys.modules["nvtx"]
        return None
    return module


class NvtxRanges:
    """Pushes and pops ranges; `available` says whether anything can see them."""

    def __init__(self) -> None:
        self._domain: Any = None
        module = _nvtx()
        if module is None:
            return
        domain = module.get_domain("launchscope")
        # A DummyDomain is what nvtx gives when no consumer is attached, and it stays that.
        self._domain = None if type(domain).__name__ == "DummyDomain" else domain

    @property
    def available(self) -> bool:
        return self._domain is not None

    def push(self, message: str) -> None:
        if self._domain is not None:
            self._domain.push_range(self._domain.get_event_attributes(message=message))

    def pop(self) -> None:
        if self._domain is not None:
            self._domain.pop_range()
