"""What an output format is: a name, the suffixes it is chosen by, and a render function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Render(Protocol):
    """Renders a whole Profile, or another value that the format knows.

    Options a format has no use for are ignored by it.
    """

    def __call__(self, profile: Any, /, **options: object) -> str | bytes: ...


@dataclass(frozen=True)
class Reporter:
    """One format. `suffixes` are in lower case with their dot; empty for stdout only."""

    name: str
    suffixes: tuple[str, ...]
    render: Render
