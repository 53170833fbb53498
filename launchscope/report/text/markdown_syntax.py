"""Markdown's marks: tables, code, and the signs that have to be escaped."""

from __future__ import annotations

from collections.abc import Sequence

RIGHT = "---:"
LEFT = "---"


def table(
    heading: Sequence[str],
    alignment: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    escaped: bool = False,
) -> str:
    """A table; `escaped`: its cells are Markdown already."""
    cells = rows if escaped else [list(map(escape, row)) for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, alignment, *cells))


def escape(text: str) -> str:
    """Signs that would become formatting, or end a table cell; on one line."""
    text = _one_line(text)
    for sign in "\\`*_<>|~":
        text = text.replace(sign, f"\\{sign}")
    return text


def code(text: str) -> str:
    """As code; a pipe would end a table cell even in there."""
    return "`" + _one_line(text).replace("`", "'").replace("|", "\\|") + "`"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
