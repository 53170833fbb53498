"""What the hooks tell of: the events of a script, at the outermost level."""

from __future__ import annotations

from typing import Any, Protocol, cast


class StepObserver(Protocol):
    """Hears events of the outermost level only; may raise StopRun."""

    def forward_begin(self, key: str, module: Any, args: Any, kwargs: Any) -> None: ...
    def forward_end(self, key: str, module: Any) -> None: ...
    def backward_begin(self) -> None: ...
    def backward_end(self) -> None: ...
    def optimizer_begin(self, key: str, optimizer: Any) -> None: ...
    def optimizer_end(self, key: str, optimizer: Any) -> None: ...
    def fetch_begin(self) -> None: ...
    def compiled(self) -> None: ...


class _Nobody:
    """Hears everything and does nothing."""

    def __getattr__(self, event: str) -> Any:
        return lambda *details: None


NOBODY: StepObserver = cast(StepObserver, _Nobody())
