"""NVTX ranges in the domain `launchscope`: one per pass, one per step.

Seen by any NVTX consumer attached to the process; free when none is. Without the nvtx
package in the script's interpreter there are none, and nothing else changes.
"""

from __future__ import annotations

from typing import Any


class NvtxRanges:
    """Pushes and pops ranges; `available` says whether anything can see them."""

    def __init__(self) -> None:
        self._domain: Any = None
        try:
            import nvtx
        except ImportError:
            return
        self._domain = nvtx.get_domain("launchscope")

    @property
    def available(self) -> bool:
        return self._domain is not None

    def push(self, message: str) -> None:
        if self._domain is not None:
            self._domain.push_range(self._domain.get_event_attributes(message=message))

    def pop(self) -> None:
        if self._domain is not None:
            self._domain.pop_range()
