"""Marks a person may put into a script: in a launchscope run `step()` decides where the step begins
and ends, and `region()` names a span."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from typing import Any, Protocol


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
    """Marks one step: `with launchscope.step(): ...` or `@launchscope.step()`. In a launchscope run
    marks win over the detected step; anywhere else they cost one flag check."""

    def __enter__(self) -> None:
        if _observer is not None:
            _observer.marker_begin()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        # A step that raised does not count: its end is not reported, the next begin replaces it.
        if _observer is not None and kind is None:
            _observer.marker_end()


class region(ContextDecorator):
    """Names a span of a step in traces and NVTX viewers: `with launchscope.region("attention")`.
    Elsewhere than in a launchscope run with torch imported it does nothing."""

    def __init__(self, name: str):
        self.name = name
        self._open: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        span: AbstractContextManager[object] = nullcontext()
        if _observer is not None and torch is not None:
            span = torch.autograd.profiler.record_function(self.name)
        span.__enter__()
        self._open.append(span)

    def __exit__(self, *raised: Any) -> None:
        self._open.pop().__exit__(*raised)
