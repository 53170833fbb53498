"""What an output format is: a name, the suffixes it is chosen by, and what it can render."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from launchscope.errors import UsageError


class Render(Protocol):
    """Renders a whole value. Options a format has no use for are ignored by it."""

    def __call__(self, value: Any, /, **options: object) -> str | bytes: ...


@dataclass(frozen=True)
class Reporter:
    """One format. `suffixes` are in lower case with their dot; empty for stdout only.

    `renders` has a function for each type of value that the format can show.
    """

    name: str
    suffixes: tuple[str, ...]
    renders: Mapping[type, Render]

    def render(self, value: object, /, **options: object) -> str | bytes:
        """The value in this format; UsageError for one of a type it cannot show."""
        return self.renderer(type(value))(value, **options)

    def renderer(self, kind: type) -> Render:
        """What renders values of this type; UsageError if nothing does."""
        if kind not in self.renders:
            raise UsageError(
                f"the format {self.name} cannot show a {kind.__name__}",
                hint="terminal, markdown and json show everything",
            )
        return self.renders[kind]
