"""A figure of the page, and what the figures share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from launchscope.wording import ms

Kind = Literal["timeline", "stack", "runs", "lines"]
Row = dict[str, Any]


class Figure(Struct, frozen=True):
    """`data` is what the page's script draws for this `kind`; `text` says the same in words."""

    kind: Kind
    heading: str
    data: Mapping[str, Any]
    text: str = ""
    note: str = ""


def rows_figure(
    kind: Kind, heading: str, rows: Sequence[Row], says: str, note: str = "", **others: object
) -> Iterator[Figure]:
    """The figure of these rows, if there are any. `says` has the form of a row in words, `others`
    is data beside the rows."""
    if rows:
        text = "; ".join(says.format_map(row) for row in rows)
        yield Figure(kind, heading, {"rows": rows, **others}, text, note)


def stacked(parts: Sequence[tuple[str, str, float | None]]) -> list[Row]:
    """The known parts of a bar, from their tones, labels and milliseconds."""
    return [
        {"tone": tone, "label": label, "value": value, "text": ms(value)}
        for tone, label, value in parts
        if value is not None and value > 0
    ]
