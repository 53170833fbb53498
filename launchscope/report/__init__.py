"""A value -> text or bytes. One output format per file, each exposing one REPORTER."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from launchscope.errors import UsageError
from launchscope.host import Blocks, working_directory
from launchscope.plugins import load_plugin, load_plugins
from launchscope.visible import visible, visible_code

if TYPE_CHECKING:
    from launchscope.analysis.timeline.annotations import Annotations
    from launchscope.model import SourceLine


@dataclass(frozen=True)
class RenderOptions:
    """How a report is laid out. A format ignores what it has no use for."""

    width: int = 80
    color: bool = False
    top: int | None = None  # rows of long tables; None: what suits the format
    repository: str = ""  # the absolute path of its root; empty: the working directory
    next_commands: tuple[str, ...] = ()  # what to type next
    brief: bool = False  # what a person needs first, on one screen
    more: str = 'launchscope.save(..., "report.html") writes the whole report'  # its last line
    trace: Annotations | None = None  # that a Profile was made of, for a format that shows it

    def in_repository(self, where: SourceLine | None) -> SourceLine | None:
        """A line relative to the repository, as code review names it; None for one outside."""
        if where is None or not where.file or where.line < 1:
            return None
        here = working_directory()
        root = self.repository or here
        path = os.path.normpath(os.path.join(here, where.file))
        if not path.startswith(os.path.join(root, "")):
            path = os.path.realpath(path)  # a symbolic link may lead into it
        path = os.path.relpath(path, root)
        return None if path.split(os.sep)[0] == os.pardir else replace(where, file=path)


T = TypeVar("T")
DEFAULTS = RenderOptions()
Content = str | bytes | Blocks
Render = Callable[[Any, RenderOptions], Content]


@dataclass(frozen=True)
class Reporter:
    """One format. `suffixes` are in lower case with their dots; empty for stdout only.

    `renders` has a function for each type of value that the format can show. It gets the value
    with visible texts, because names come from anywhere; an `exact` format gets them as they are.
    One that `shows_trace` needs more than the value holds, and is exact.
    """

    name: str
    suffixes: tuple[str, ...]
    renders: Mapping[type, Render]
    exact: bool = False
    shows_trace: bool = False

    def render(self, value: object, options: RenderOptions = DEFAULTS) -> Content:
        """The value in this format, a large file block by block; UsageError for a value that the
        format cannot show."""
        renderer = self.renderer(type(value))
        if not self.exact:
            from msgspec import structs  # a command's help needs neither

            from launchscope.model import Adoption

            # The columns of a trace are long and hold no texts for people.
            options = with_texts(replace(options, trace=None), visible)
            seen = with_texts(value, visible)
            if isinstance(value, Adoption) and isinstance(seen, Adoption):
                lines = (line.removesuffix("\r") for line in value.diff)
                seen = structs.replace(seen, diff=tuple(map(visible_code, lines)))
            value = seen
        return renderer(value, options)

    def renderer(self, kind: type) -> Render:
        """What renders values of this type; UsageError if nothing does."""
        if kind not in self.renders:
            raise UsageError(
                f"the format {self.name} cannot show a {kind.__name__}",
                hint="terminal, markdown, html and json show everything",
            )
        return self.renders[kind]


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """A value with every text in it changed; the same object where nothing changes."""
    made: Any = value
    if isinstance(value, str):
        made = change(value)
    elif isinstance(value, tuple | list):
        made = type(value)(with_texts(item, change) for item in value)
    elif isinstance(value, Mapping):
        made = {with_texts(key, change): with_texts(item, change) for key, item in value.items()}
    elif names := getattr(type(value), "__match_args__", ()):  # of a dataclass or a Struct
        old = {name: getattr(value, name) for name in names}
        new = {name: with_texts(item, change) for name, item in old.items()}
        made = value if new == old else type(value)(**new)
    return cast("T", made)


@cache
def all_reporters() -> tuple[Reporter, ...]:
    """Every format, sorted by name."""
    found = load_plugins("launchscope.report", "REPORTER", Reporter)
    return tuple(sorted(found, key=lambda reporter: reporter.name))


def reporter_named(name: str) -> Reporter:
    """The format of that name; UsageError with the nearest name otherwise."""
    # The others stay unloaded, which is a tenth of the time that a report needs to start.
    found = load_plugin("launchscope.report", name.lower(), "REPORTER", Reporter)
    if found is not None:
        return found
    from difflib import get_close_matches

    known = {reporter.name: reporter for reporter in all_reporters()}
    suffix = f".{name.lower().lstrip('.')}"
    near = [known_as for known_as, kind in known.items() if suffix in kind.suffixes]
    near = near or get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the formats are {', '.join(known)}"
    raise UsageError(f"unknown format {name!r}", hint=hint)


def reporter_for_path(path: Path) -> Reporter:
    """The format that a file's suffix chooses, `.md` or a longer one that ends in it; UsageError
    for an unknown suffix."""
    known = {suffix: reporter for reporter in all_reporters() for suffix in reporter.suffixes}
    name = path.name.lower()
    if found := max(filter(name.endswith, known), key=len, default=""):
        return known[found]
    suffix = path.suffix.lower()
    what = f"suffix {suffix!r}" if suffix else "a file without a suffix"
    raise UsageError(
        f"{path}: no output format for {what}",
        hint=f"the suffixes are {', '.join(sorted(known))}",
    )


def render(value: object, format_name: str, options: RenderOptions = DEFAULTS) -> str | bytes:
    """A Profile or another value of the model, in the format of that name."""
    made = reporter_named(format_name).render(value, options)
    return b"".join(made) if isinstance(made, Blocks) else made
