"""Finds the formats: every module of this package that exposes a REPORTER."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from launchscope.errors import UsageError
from launchscope.plugins import load_plugins
from launchscope.report.reporter import DEFAULTS, RenderOptions, Reporter


@cache
def all_reporters() -> tuple[Reporter, ...]:
    """Every format, sorted by name. A format imports its libraries only when it renders."""
    found = load_plugins("launchscope.report", "REPORTER", Reporter)
    return tuple(sorted(found, key=lambda reporter: reporter.name))


def reporter_named(name: str) -> Reporter:
    """The format of that name; UsageError with the nearest name otherwise."""
    known = {reporter.name: reporter for reporter in all_reporters()}
    if name.lower() in known:
        return known[name.lower()]
    suffix = f".{name.lower().lstrip('.')}"
    near = [known_as for known_as, kind in known.items() if suffix in kind.suffixes]
    near = near or get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    raise UsageError(f"unknown format {name!r}", hint=hint)


def reporter_for_path(path: Path) -> Reporter:
    """The format that a file's suffix chooses; UsageError for an unknown suffix."""
    known = {suffix: reporter for reporter in all_reporters() for suffix in reporter.suffixes}
    suffix = path.suffix.lower()
    if suffix in known:
        return known[suffix]
    what = f"suffix {suffix!r}" if suffix else "a file without a suffix"
    raise UsageError(
        f"{path}: no output format for {what}", hint=f"known are {', '.join(sorted(known))}"
    )


def render(value: object, format_name: str, options: RenderOptions = DEFAULTS) -> str | bytes:
    """A Profile or another value of the model, in the format of that name."""
    return reporter_named(format_name).render(value, options)
