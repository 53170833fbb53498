"""Tables with a sentence above them: how values beside the Profile are shown.

A Sheet is what such a report says; it is laid out for a terminal or as Markdown.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from launchscope.model import Difference, Ranks
from launchscope.report.sheets import Sheet, SheetTable, sheet_of_difference, sheet_of_ranks

__all__ = ["Shown", "markdown", "terminal"]

Shown = Difference | Ranks


def _sheet(value: Shown, top: int) -> Sheet:
    if isinstance(value, Difference):
        return sheet_of_difference(value, top)
    return sheet_of_ranks(value)


def _top(options: dict[str, object]) -> int:
    top = options.get("top")
    return top if isinstance(top, int) else 8


# ------------------------------------------------------------------------ terminal


def terminal(value: Shown, /, **options: object) -> str:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    sheet = _sheet(value, _top(options))
    width, color = options.get("width"), options.get("color") is True
    stream = StringIO()
    console = Console(
        file=stream, width=width if isinstance(width, int) else 80, force_terminal=color,
        color_system="standard" if color else None, highlight=False, markup=False, emoji=False,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(Text(sheet.headline, style="bold"))
    for line in sheet.context:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))
    for table in sheet.tables:
        console.print()
        if table.title:
            console.print(Text(table.title, style="bold"))
        console.print(Padding(_laid_out(table, console.width - 2), (0, 0, 0, 2)))
    if sheet.notes:
        console.print()
        console.print(Text("Notes", style="bold"))
        for note in sheet.notes:
            console.print(Padding(Text(f"- {note}"), (0, 0, 0, 2)))
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    if options.get("unicode") is False:
        for sign, plain in (("µ", "u"), ("…", "~")):
            text = text.replace(sign, plain)
        return text.encode("ascii", "replace").decode()
    return text


def _laid_out(table: SheetTable, width: int) -> Any:
    """Figures get the width they need; the name, in the last column, what is left."""
    from rich.table import Table
    from rich.text import Text

    name = len(table.headings) - 1
    wide = {
        place: max(len(heading), *(len(row[place]) for row in table.rows), 1)
        for place, heading in enumerate(table.headings)
    }
    for place in table.spare:
        if sum(wide.values()) + 2 * (len(wide) - 1) > width:
            del wide[place]
    others = sum(wide.values()) - wide[name] + 2 * (len(wide) - 1)
    wide[name] = max(10, min(wide[name], width - others))
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, cells in wide.items():
        made.add_column(
            table.headings[place],
            width=cells,
            justify="left" if place in table.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in table.rows:
        style = "bold" if row in table.marked else ""
        made.add_row(*(Text(row[place], style=style) for place in wide))
    return made


# ------------------------------------------------------------------------ Markdown


def markdown(value: Shown, /, **options: object) -> str:
    sheet = _sheet(value, _top(options))
    parts = [f"**{_escaped(sheet.headline)}**"]
    if sheet.context:
        parts.append("\n".join(f"- {_escaped(line)}" for line in sheet.context))
    for table in sheet.tables:
        if table.title:
            parts.append(f"## {_escaped(table.title)}")
        aligned = ["---" if i in table.left else "---:" for i in range(len(table.headings))]
        rows = [table.headings, aligned, *([_escaped(cell) for cell in row] for row in table.rows)]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if sheet.notes:
        parts += ["## Notes", "\n".join(f"- {_escaped(note)}" for note in sheet.notes)]
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    for sign in "\\`*_<>|":
        text = text.replace(sign, f"\\{sign}")
    return text
