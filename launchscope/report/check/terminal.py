"""A Check on a terminal: the answer, the limits, what changed, what to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launchscope.model import Check
from launchscope.report.check.content import WRITTEN, CheckContent, LimitRow, check_content
from launchscope.report.rich_layout import INDENT, heading, item, line, panel, screened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLOURS = {
    WRITTEN: "cyan",
    "PASSED": "green",
    "FAILED": "red",
    "INCONCLUSIVE": "yellow",
    "NOT COMPARED": "yellow",
}
_OUTCOMES = {
    "passed": "green",
    "failed": "bold red",
    "inconclusive": "yellow",
    "not compared": "yellow",
}


def render(check: Check, /, **options: object) -> str:
    """Text for a terminal. Options as for a Profile; `top` bounds the changes (12)."""
    top, commands = options.get("top"), options.get("next_commands")
    content = check_content(
        check,
        top=top if isinstance(top, int) else 12,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return screened(lambda console, unicode: _write(console, content, unicode), options)


def _write(console: Console, content: CheckContent, unicode: bool) -> None:
    colour = _COLOURS[content.badge]
    console.print(
        panel(content.badge, colour, content.headline, content.basis, content.title,
              unicode=unicode)
    )  # fmt: skip
    for text in content.context:
        line(console, text, style="dim")
    if content.limits:
        heading(console, "Limits")
        console.print(_limits(content.limits, baseline=content.compared))
    if len(content.failures) > 1:
        heading(console, "Why it failed")
        for failure in content.failures:
            item(console, "-", failure)
    if content.changes:
        _changes(console, content)
    elif content.compared:
        heading(console, "What changed")
        line(console, "nothing: the same operations, blockers and kernels", style="dim")
    if content.warnings:
        heading(console, "To know")
        for warning in content.warnings:
            item(console, "-", warning)
    if content.next:
        heading(console, "Next")
        for command in content.next:
            line(console, command, style="cyan")


def _limits(rows: tuple[LimitRow, ...], *, baseline: bool) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    if baseline:
        table.add_column("baseline", justify="right")
    table.add_column("now", justify="right")
    table.add_column("", no_wrap=True)
    for row in rows:
        cells = [row.metric, row.limit, *([row.baseline] if baseline else []), row.now]
        outcome = Text(row.outcome, style=_OUTCOMES[row.outcome])
        table.add_row(*map(Text, cells), outcome)
    return Padding(table, INDENT)


def _changes(console: Console, content: CheckContent) -> None:
    """One block per kind; names and lines below each other, so that neither is cut."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    heading(console, "What changed, per step")
    for kind in dict.fromkeys(row.kind for row in content.changes):
        rows = [row for row in content.changes if row.kind == kind]
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("was", justify="right", no_wrap=True)
        table.add_column("is", justify="right", no_wrap=True)
        table.add_column(kind, overflow="fold")
        for row in rows:
            style = "red" if row.difference.startswith("+") else "green"
            name = Text(row.name)
            if row.where:
                name.append(f"  {row.where}", style="bold")
            table.add_row(Text(row.difference, style=style), row.before, row.after, name)
        console.print(Padding(table, INDENT))
    if content.changes_left:
        line(console, f"and {content.changes_left} more (-v shows all)", style="dim")
