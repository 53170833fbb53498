"""What an output format is: a name, the suffixes it is chosen by, and what it can render."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launchscope.errors import UsageError


@dataclass(frozen=True)
class RenderOptions:
    """How a report is laid out. A format ignores what it has no use for."""

    width: int = 80
    color: bool = False
    unicode: bool = True
    top: int | None = None  # rows of long tables; None: what suits the format
    folder: str = ""  # where the script ran, below the repository
    next_commands: tuple[str, ...] = ()  # what to type next


DEFAULTS = RenderOptions()
Render = Callable[[Any, RenderOptions], str | bytes]


@dataclass(frozen=True)
class Reporter:
    """One format. `suffixes` are in lower case with their dot; empty for stdout only.

    `renders` has a function for each type of value that the format can show.
    """

    name: str
    suffixes: tuple[str, ...]
    renders: Mapping[type, Render]

    def render(self, value: object, options: RenderOptions = DEFAULTS) -> str | bytes:
        """The value in this format; UsageError for one of a type it cannot show."""
        return self.renderer(type(value))(value, options)

    def renderer(self, kind: type) -> Render:
        """What renders values of this type; UsageError if nothing does."""
        if kind not in self.renders:
            raise UsageError(
                f"the format {self.name} cannot show a {kind.__name__}",
                hint="terminal, markdown, html and json show everything",
            )
        return self.renders[kind]
