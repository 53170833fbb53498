"""speedscope.app: what launched the work of a step, weighted by launches and by idle GPU time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launchscope.errors import UsageError
from launchscope.model import OverheadRow, Profile
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.labels import command
from launchscope.report.documents.launching import name_of
from launchscope.report.json import encoded, in_ascii

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_NOTHING = "the profile does not show which lines, modules or operators launched the work"
_HINT = (
    "that needs the passes trace and inspect, or a trace of torch.profiler with its operators "
    "(with_modules=True and with_stack=True show more)"
)


def render(profile: Profile, options: RenderOptions) -> bytes:
    """A file of two profiles, launches and idle time, for each kind of source that is known.
    UsageError where none is."""
    tables = {
        "line": profile.overhead_by_line,
        "module": profile.overhead_by_module,
        "operator": profile.launches_by_operator,
    }
    frames: dict[tuple[str, str | None, int | None], int] = {}
    profiles = []
    for noun, rows in tables.items():
        if rows:
            profiles += _profiles(noun, rows, frames)
    if not profiles:
        raise UsageError(_NOTHING, hint=_HINT)
    shared = [
        {key: value for key, value in zip(("name", "file", "line"), frame) if value is not None}
        for frame in frames
    ]
    return encoded(
        {
            "$schema": _SCHEMA,
            "exporter": "launchscope",
            "name": command(profile.target),
            "activeProfileIndex": 0,
            "shared": {"frames": shared},
            "profiles": profiles,
        }
    )


def _profiles(
    noun: str,
    rows: Sequence[OverheadRow],
    frames: dict[tuple[str, str | None, int | None], int],
) -> list[dict[str, Any]]:
    """Launches per step, and idle milliseconds where they were measured."""
    samples = [[frames.setdefault(f, len(frames)) for f in _stack(noun, row)] for row in rows]
    weights = {"launches per step": ("none", [row.launches for row in rows])}
    if rows[0].idle_ms is not None:
        weights["GPU idle"] = ("milliseconds", [row.idle_ms or 0.0 for row in rows])
    return [
        {
            "type": "sampled",
            "name": f"{what} by {noun}",
            "unit": unit,
            "startValue": 0,
            "endValue": sum(values),
            "samples": samples,
            "weights": values,
        }
        for what, (unit, values) in weights.items()
    ]


def _stack(noun: str, row: OverheadRow) -> list[tuple[str, str | None, int | None]]:
    """The outermost frame first: the file of a line, or the modules around one."""
    where = row.where
    if where is not None:
        return [(where.file, where.file, None), (name_of(noun, row), where.file, where.line)]
    return [(name, None, None) for name in row.stack or (name_of(noun, row),)]


REPORTER = Reporter("speedscope", (".speedscope.json",), {Profile: render}, in_ascii=in_ascii)
