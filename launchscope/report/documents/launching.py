"""How the work of the traced steps was launched, and by what: the part of a Profile's report for
those who look closer."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import OverheadRow, Profile
from launchscope.report import frames
from launchscope.report.document import (
    EMPTY,
    Column,
    Paragraph,
    Section,
    Table,
    code,
)
from launchscope.wording import count, installed, ms, pct

_IDLE = (
    "GPU idle is the time that the GPU waits for the host. It is counted for the launch that ends "
    "the wait."
)
_BACKWARD = (
    "Launches of the backward count for the part of the forward that they belong to, where the "
    "trace shows it."
)


def launching(profile: Profile, top: int, *, is_total: bool) -> tuple[Section, ...]:
    """Empty sections for what is not known. `is_total`: figures are of a whole span."""
    per_step = "" if is_total else " per step"
    tables = (
        ("GPU idle, waiting for launches, by line", "line", profile.overhead_by_line),
        ("GPU idle, waiting for launches, by module", "module", profile.overhead_by_module),
        ("Launches by operator", "operator", profile.launches_by_operator),
    )
    shown: list[Section] = []
    for title, noun, rows in tables:
        if rows:
            meaning = _IDLE if noun == "operator" else f"{_IDLE} {_BACKWARD}"
            explained = () if shown else (Paragraph(meaning, "dim"),)
            blocks = (_overhead(noun, rows, top, per_step), *explained)
            shown.append(Section(title, blocks, is_detail=True))
    return tuple(shown)


def part_name(noun: str, part: str) -> str:
    """The name of what has no line, module or operator of its own; empty for others."""
    parts = {
        "others": f"other {noun}s", "between_steps": "between steps", "unknown": f"no known {noun}"
    }  # fmt: skip
    return parts.get(part, "")


def _overhead(noun: str, rows: Sequence[OverheadRow], top: int, per_step: str) -> Table:
    def name(name: str, part: str) -> str:
        other = part_name(noun, part)
        return f"({other})" if other else installed(name)

    return Table.of(
        frames.overhead(rows),
        code(noun, ("name", "part"), name, key=True, fit="cut_start"),
        Column(f"launches{per_step}", "launches", count),
        Column("GPU idle", "idle_ms", ms, missing=EMPTY),
        Column("share", "share_pct", pct, missing=EMPTY),
        top=top,
    )
