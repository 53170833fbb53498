"""NVTX ranges in the domain `launchscope`: one per pass, one per step.

Any NVTX consumer that is attached to the process sees them; without one they are left out, as
they are where the script's interpreter has no nvtx package.
"""

from __future__ import annotations

from typing import Any

# What nvtx returns for a domain when no consumer is attached; it stays that.
_UNSEEN = "DummyDomain"


class NvtxRanges:
    """Pushes and pops ranges; `available` says whether anything can see them."""

    def __init__(self) -> None:
        self._domain: Any = None
        self._prepared: list[Any] = []
        try:
            import nvtx
        except ImportError:
            return
        domain = nvtx.get_domain("launchscope")
        self._domain = None if type(domain).__name__ == _UNSEEN else domain

    @property
    def available(self) -> bool:
        return self._domain is not None

    def prepare(self, messages: list[str]) -> None:
        """Make the attributes of the ranges that `push_prepared` pushes."""
        self._prepared = [] if self._domain is None else list(map(self._attributes, messages))

    def _attributes(self, message: str) -> Any:
        return self._domain.get_event_attributes(message=message)

    def push(self, message: str) -> None:
        if self._domain is not None:
            self._domain.push_range(self._attributes(message))

    def push_prepared(self, index: int) -> bool:
        """Push a prepared range; False if there are fewer."""
        if index >= len(self._prepared):
            return False
        self._domain.push_range(self._prepared[index])
        return True

    def pop(self) -> None:
        if self._domain is not None:
            self._domain.pop_range()
