"""How a workflow reports what it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from launchscope.model import Profile
    from launchscope.runner.parent.child_watch import ProgressEvent


class Progress:
    """Receives news while a workflow runs, and drops them; a terminal shows them."""

    def on_event(self, event: ProgressEvent) -> None:
        """A run of the script starts or is over, or one of its passes starts, advances or ends."""

    def so_far(self, profile: Callable[[], Profile]) -> None:
        """A replay of the step is measured; the script's own loop will take some more seconds."""

    def message(self, text: str) -> None:
        """The workflow starts or finishes a part of its work."""

    def reading(self, done: int, total: int) -> None:
        """So many of the files are read."""

    def beside(self, text: str) -> None:
        """Lines that a person needs although they are not in the report."""

    def note(self, text: str) -> None:
        """Something to know about the result."""
