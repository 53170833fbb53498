"""How a workflow tells whoever waits for it what it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from launchscope.runner.parent.child_watch import ProgressEvent


class Progress(Protocol):
    """Receives news while a workflow runs. A terminal shows them; `Silent` drops them."""

    def on_event(self, event: ProgressEvent) -> None:
        """A run of the script starts, or one of its passes starts, advances or ends."""

    def message(self, text: str) -> None:
        """The workflow starts or finishes a part of its work."""

    def status(self, text: str) -> None:
        """What happens right now, until the next call. An empty text ends it."""

    def note(self, text: str) -> None:
        """Something to know about the result."""


class Silent:
    """Drops all news."""

    def on_event(self, event: ProgressEvent) -> None: ...

    def message(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...
