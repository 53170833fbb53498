"""`step()` and `region()`: marks a person may put into a script.

Outside a launchscope run a mark is one flag check. Inside one, a `step()` decides where
the step begins and ends, and a `region()` names a span in traces (NVTX and Kineto).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ContextDecorator
from types import TracebackType
from typing import Protocol

__all__ = ["region", "step"]


class MarkObserver(Protocol):
    """What the runner registers to follow the marks."""

    def marker_begin(self) -> None: ...
    def marker_end(self) -> None: ...


_observer: MarkObserver | None = None


def observe(observer: MarkObserver | None) -> None:
    """Send marks to `observer` from now on; None turns them off again."""
    global _observer
    _observer = observer


class step(ContextDecorator):
    """Marks one step: `with launchscope.step(): ...` or `@launchscope.step()`.

    In a launchscope run these marks win over the detected step. Anywhere else they do
    nothing and cost one flag check.
    """

    def __enter__(self) -> None:
        if _observer is not None:
            _observer.marker_begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A step that raised is no step: its end is not reported, the next begin replaces it.
        if _observer is not None and kind is None:
            _observer.marker_end()


class region(ContextDecorator):
    """Names a span of a step in traces and NVTX viewers: `with launchscope.region("attention")`.

    Active only in a launchscope run with torch imported; elsewhere it does nothing.
    """

    def __init__(self, name: str):
        self.name = name
        self._open: list[AbstractContextManager[object] | None] = []

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        if _observer is None or torch is None:
            self._open.append(None)
            return
        span = torch.autograd.profiler.record_function(self.name)
        span.__enter__()
        self._open.append(span)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        span = self._open.pop()
        if span is not None:
            span.__exit__(kind, value, traceback)
