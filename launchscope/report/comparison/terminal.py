"""The comparison as a person reads it first: headline, table, curves, ways, buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launchscope.model import Comparison
from launchscope.report.comparison.buckets import BucketSection
from launchscope.report.comparison.content import ComparisonContent, Table, content_of
from launchscope.report.comparison.ladder import LadderSection
from launchscope.report.comparison.plot import drawn
from launchscope.report.rich_layout import INDENT, heading, item, line, panel, screened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CURVES = ("red", "green", "yellow", "cyan")
_GAP = 2
_BAR = 30
_VERDICTS = {"adopt": "green", "stay eager": "cyan", "unsafe": "red", "out of memory": "red"}


def render(comparison: Comparison, /, **options: object) -> str:
    """Text for a terminal. Options: `width` (80), `color`, `unicode` (True), `next_commands`."""
    commands = options.get("next_commands")
    content = content_of(
        comparison,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return screened(lambda console, unicode: _write(console, content, unicode=unicode), options)


def _write(console: Console, content: ComparisonContent, *, unicode: bool) -> None:
    from rich.text import Text

    headline = content.headline or "The measurements side by side."
    console.print(panel("COMPARISON", "", headline, "", content.title, unicode=unicode))
    for text in content.context:
        line(console, text, style="dim")
    if content.table is not None:
        for part in _parts(content.table, console.width):
            console.print()
            console.print(_table(part))
        for text in content.table.legend:
            line(console, text, style="dim")
    for text in content.failures:
        line(console, text, style="red")
    for text in content.crossovers:
        console.print()
        line(console, text)
    for plot in content.plots:
        heading(console, plot.title)
        lines = drawn(plot.series, console.width - 2, mark=plot.mark, unicode=unicode)
        for cells in lines:
            drawn_line = Text("  ")
            for cell in cells:
                drawn_line.append(
                    cell.sign, style="" if cell.series is None else _CURVES[cell.series]
                )
            console.print(drawn_line, no_wrap=True, overflow="ignore")
    for ladder in content.ladders:
        _ladder(console, ladder)
    for buckets in content.buckets:
        _buckets(console, buckets, unicode=unicode)
    if content.notes:
        heading(console, "Notes")
        for note in content.notes:
            item(console, "-", note)
    if content.next:
        heading(console, "Next")
        for command in content.next:
            line(console, command, style="cyan")


def _parts(table: Table, width: int) -> list[Table]:
    """The table, cut into as many as fit beside each other's key columns."""
    wide = [
        max(len(column.heading), *(len(row[i]) for row in table.rows)) + _GAP
        for i, column in enumerate(table.columns)
    ]
    keys = [i for i, column in enumerate(table.columns) if column.key]
    room = width - INDENT[3] - sum(wide[i] for i in keys)
    parts: list[list[int]] = [[]]
    used = 0
    for i in range(len(table.columns)):
        if i in keys:
            continue
        if parts[-1] and used + wide[i] > room + _GAP:
            parts.append([])
            used = 0
        parts[-1].append(i)
        used += wide[i]
    return [
        Table(
            tuple(table.columns[i] for i in (*keys, *part)),
            tuple(tuple(row[i] for i in (*keys, *part)) for row in table.rows),
        )
        for part in parts
    ]


def _table(table: Table) -> RenderableType:
    headings = [column.heading for column in table.columns]
    right = [column.right for column in table.columns]
    return _grid(headings, right, table.rows)


def _grid(
    headings: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]
) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="bold",
        show_header=any(headings),
    )
    for i, (name, is_right) in enumerate(zip(headings, right)):
        last = i == len(headings) - 1
        grid.add_column(name, justify="right" if is_right else "left", no_wrap=not last)
    for row in rows:
        grid.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    return Padding(grid, INDENT)


def _style(cell: str) -> str:
    return "dim" if cell == "–" else _VERDICTS.get(cell, "")


def _ladder(console: Console, section: LadderSection) -> None:
    heading(console, section.title)
    if section.headline:
        line(console, section.headline)
    console.print()
    right = [not section.is_left(heading) for heading in section.headings]
    console.print(_grid(section.headings, right, section.rows))
    for text in section.details:
        line(console, text, style="dim")


def _buckets(console: Console, section: BucketSection, *, unicode: bool) -> None:
    heading(console, section.title)
    if section.headline:
        line(console, section.headline)
    console.print()
    most = max((bar.share_pct for bar in section.histogram), default=0.0)
    sign = "█" if unicode else "#"
    rows = [
        (bar.label, sign * max(1 if bar.steps else 0, round(_BAR * bar.share_pct / most)),
         str(bar.steps), f"{bar.share_pct:.0f} %")
        for bar in section.histogram
        if most
    ]  # fmt: skip
    if rows:
        console.print(_grid(("size", "", "steps", "share"), (True, False, True, True), rows))
    if section.rows:
        console.print()
        console.print(_grid(section.headings, [True] * len(section.headings), section.rows))
    if section.facts:
        console.print()
        console.print(_grid(("", ""), (False, True), section.facts))
    for note in section.notes:
        line(console, note, style="dim")
