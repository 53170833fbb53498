"""`step()` and `region()`: marks a person may put into a script.

Outside a launchscope run a mark is one flag check. Inside one, a `step()` decides where
the step begins and ends, and a `region()` names a span in traces (NVTX and Kineto).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

__all__ = ["region", "step"]

F = TypeVar("F", bound=Callable[..., Any])


class StepListener(Protocol):
    """What the runner registers to hear of marks."""

    def marker_begin(self) -> None: ...

    def marker_end(self) -> None: ...


_listener: StepListener | None = None


def listen(listener: StepListener | None) -> None:
    """Send marks to `listener` from now on; None turns them off again."""
    global _listener
    _listener = listener


class _Mark:
    """A context manager that also decorates; one instance serves any number of uses."""

    __slots__ = ()

    def __enter__(self) -> None:
        raise AssertionError("a mark defines what entering it does")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise AssertionError("a mark defines what leaving it does")

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return marked  # type: ignore[return-value]


class step(_Mark):
    """Marks one step: `with launchscope.step(): ...` or `@launchscope.step()`.

    In a launchscope run these marks win over the detected step. Anywhere else they do
    nothing and cost one flag check.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        if _listener is not None:
            _listener.marker_begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A step that raised is no step: its end is not reported, the next begin replaces it.
        if _listener is not None and kind is None:
            _listener.marker_end()


class region(_Mark):
    """Names a span of a step in traces and NVTX viewers: `with launchscope.region("attention")`.

    Active only in a launchscope run with torch imported; elsewhere it does nothing.
    """

    __slots__ = ("_open", "name")

    def __init__(self, name: str):
        self.name = name
        self._open: list[Any] = []

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        if _listener is None or torch is None:
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
