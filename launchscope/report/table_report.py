"""Tables with a sentence above them: how values beside the Profile are shown.

A Sheet is what such a report says; it is laid out for a terminal or as Markdown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launchscope.model import Difference, Ranks
from launchscope.report.rich_layout import INDENT, heading, item, line, screened
from launchscope.report.table_reports import Sheet, SheetTable, sheet_of_difference, sheet_of_ranks
from launchscope.report.text.markdown_syntax import LEFT, RIGHT, escape, table

if TYPE_CHECKING:
    from rich.console import Console

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
    sheet = _sheet(value, _top(options))
    return screened(lambda console, unicode: _write(console, sheet), options)


def _write(console: Console, sheet: Sheet) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(sheet.headline, style="bold"))
    for text in sheet.context:
        line(console, text, style="dim")
    for shown in sheet.tables:
        console.print()
        if shown.title:
            console.print(Text(shown.title, style="bold"))
        console.print(Padding(_laid_out(shown, console.width - INDENT[3]), INDENT))
    if sheet.notes:
        heading(console, "Notes")
        for note in sheet.notes:
            item(console, "-", note)


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
    parts = [f"**{escape(sheet.headline)}**"]
    if sheet.context:
        parts.append("\n".join(f"- {escape(text)}" for text in sheet.context))
    for shown in sheet.tables:
        if shown.title:
            parts.append(f"## {escape(shown.title)}")
        aligned = [LEFT if i in shown.left else RIGHT for i in range(len(shown.headings))]
        parts.append(table(shown.headings, aligned, shown.rows))
    if sheet.notes:
        parts += ["## Notes", "\n".join(f"- {escape(note)}" for note in sheet.notes)]
    return "\n\n".join(parts) + "\n"
