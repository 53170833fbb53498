"""NVTX ranges in the domain `launchscope`: one per pass, one per step.

Seen by any NVTX consumer attached to the process; nearly free when none is. Without the
nvtx package in the script's interpreter there are none, and nothing else changes.
"""

from __future__ import annotations

from typing import Any


class NvtxRanges:
    """Pushes and pops ranges; `available` says whether anything can see them."""

    def __init__(self) -> None:
        self._domain: Any = None
        self._prepared: dict[str, Any] = {}
        try:
            import nvtx
        except ImportError:
            return
        self._domain = nvtx.get_domain("launchscope")

    @property
    def available(self) -> bool:
        return self._domain is not None

    def prepare(self, messages: list[str]) -> None:
        """Make the attributes of ranges that will be pushed where every microsecond counts."""
        if self._domain is not None:
            self._prepared = {text: self._attributes(text) for text in messages}

    def _attributes(self, message: str) -> Any:
        return self._domain.get_event_attributes(message=message)

    def push(self, message: str) -> None:
        if self._domain is not None:
            self._domain.push_range(self._prepared.get(message) or self._attributes(message))

    def pop(self) -> None:
        if self._domain is not None:
            self._domain.pop_range()
