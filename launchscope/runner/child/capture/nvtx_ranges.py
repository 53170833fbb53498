"""NVTX ranges in the domain `launchscope`: one per pass, one per step.

Any NVTX consumer that is attached to the process sees them. Without one, or without the nvtx
package in the script's interpreter, there are none.
"""

from __future__ import annotations

import contextlib
import importlib.util
from types import ModuleType
from typing import Any

from launchscope.runner.child.facts.source_lines import is_persons


def _nvtx() -> ModuleType | None:
    """The package, which imports numpy: only once torch is there. None if there is none, or the
    script has a file of this name."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("nvtx")
        if spec is not None and spec.origin is not None and not is_persons(spec.origin):
            return importlib.import_module("nvtx")
    return None


class NvtxRanges:
    """Pushes and pops ranges; `available` says whether anything can see them."""

    def __init__(self) -> None:
        self._domain: Any = None
        module: Any = _nvtx()
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
