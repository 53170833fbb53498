"""What the HTML report draws: figures as plain data, which the page's own script lays out.

Figures hold values and words; where they go, and how large they are, the page decides. Every fact
in them is also in a table of the report, or in the JSON file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from launchscope.wording import ms

Kind = Literal["timeline", "stack", "lines"]
Row = dict[str, Any]


class Figure(Struct, frozen=True):
    """`data` is what the page's script draws for this `kind`; `text` says the same in words."""

    kind: Kind
    heading: str
    data: Mapping[str, Any]
    text: str = ""
    note: str = ""


Parts = Iterable[tuple[str, str, float | None]]


def stack_figure(heading: str, bars: Sequence[tuple[str, Parts, float]]) -> Figure:
    """Bars of one scale, each with its name, its parts as tones, labels and milliseconds (None: not
    known), and its whole length."""
    rows: list[Row] = [
        {"name": name, "parts": _stacked(parts), "total": ms(total)} for name, parts, total in bars
    ]
    text = "; ".join(
        f"{row['name']} {row['total']}: "
        + ", ".join(f"{part['label']} {part['text']}" for part in row["parts"])
        for row in rows
    )
    return Figure("stack", heading, {"rows": rows}, text)


def _stacked(parts: Parts) -> list[Row]:
    return [
        {"tone": tone, "label": label, "value": value, "text": ms(value)}
        for tone, label, value in parts
        if value is not None and value > 0
    ]
