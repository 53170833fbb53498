"""The comparison as a person reads it first: headline, table, curves, ways, buckets."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from launchscope.model import Comparison
from launchscope.report.comparison.buckets import BucketSection
from launchscope.report.comparison.content import ComparisonContent, Table, content_of
from launchscope.report.comparison.ladder import LadderSection
from launchscope.report.comparison.plot import drawn

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CURVES = ("red", "green", "yellow", "cyan")
_INDENT = (0, 0, 0, 2)
_GAP = 2
_BAR = 30
_VERDICTS = {"adopt": "green", "stay eager": "cyan", "unsafe": "red", "out of memory": "red"}


def render(comparison: Comparison, /, **options: object) -> str:
    """Text for a terminal. Options: `width` (80), `color`, `unicode` (True), `next_commands`."""
    from rich.console import Console

    width, commands = options.get("width"), options.get("next_commands")
    content = content_of(
        comparison,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    color = options.get("color") is True
    unicode = options.get("unicode") is not False
    stream = StringIO()
    console = Console(
        file=stream,
        width=width if isinstance(width, int) else 80,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    _write(console, content, unicode=unicode)
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    return text if unicode else _ascii(text)


def _write(console: Console, content: ComparisonContent, *, unicode: bool) -> None:
    from rich.text import Text

    console.print(_panel(content, unicode=unicode))
    for line in content.context:
        _print(console, line, style="dim")
    if content.table is not None:
        for part in _parts(content.table, console.width):
            console.print()
            console.print(_table(part))
        for line in content.table.legend:
            _print(console, line, style="dim")
    for line in content.failures:
        _print(console, line, style="red")
    for line in content.crossovers:
        console.print()
        _print(console, line)
    for plot in content.plots:
        _heading(console, plot.title)
        lines = drawn(plot.series, console.width - 2, mark=plot.mark, unicode=unicode)
        for cells in lines:
            text = Text("  ")
            for cell in cells:
                text.append(cell.sign, style="" if cell.series is None else _CURVES[cell.series])
            console.print(text, no_wrap=True, overflow="ignore")
    for ladder in content.ladders:
        _ladder(console, ladder)
    for buckets in content.buckets:
        _buckets(console, buckets, unicode=unicode)
    if content.notes:
        _heading(console, "Notes")
        for note in content.notes:
            _print(console, f"- {note}")
    if content.next:
        _heading(console, "Next")
        for command in content.next:
            _print(console, command, style="cyan")


def _panel(content: ComparisonContent, *, unicode: bool) -> RenderableType:
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    return Panel(
        Text(content.headline or "The measurements side by side."),
        title=Text(" COMPARISON ", style="bold reverse"),
        title_align="left",
        subtitle=Text(f" {content.title} ", style="dim"),
        subtitle_align="right",
        box=box.ROUNDED if unicode else box.ASCII,
        padding=(0, 1),
    )


def _parts(table: Table, width: int) -> list[Table]:
    """The table, cut into as many as fit beside each other's key columns."""
    wide = [
        max(len(column.heading), *(len(row[i]) for row in table.rows)) + _GAP
        for i, column in enumerate(table.columns)
    ]
    keys = [i for i, column in enumerate(table.columns) if column.key]
    room = width - _INDENT[3] - sum(wide[i] for i in keys)
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
    for i, (heading, is_right) in enumerate(zip(headings, right)):
        last = i == len(headings) - 1
        grid.add_column(heading, justify="right" if is_right else "left", no_wrap=not last)
    for row in rows:
        grid.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    return Padding(grid, _INDENT)


def _style(cell: str) -> str:
    return "dim" if cell == "–" else _VERDICTS.get(cell, "")


def _ladder(console: Console, section: LadderSection) -> None:
    _heading(console, section.title)
    if section.headline:
        _print(console, section.headline)
    console.print()
    right = [not section.is_left(heading) for heading in section.headings]
    console.print(_grid(section.headings, right, section.rows))
    for line in section.details:
        _print(console, line, style="dim")


def _buckets(console: Console, section: BucketSection, *, unicode: bool) -> None:
    _heading(console, section.title)
    if section.headline:
        _print(console, section.headline)
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
        _print(console, note, style="dim")


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def _print(console: Console, text: str, style: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style), _INDENT))


def _ascii(text: str) -> str:
    for sign, plain in ((" ± ", "+/-"), ("·", "-"), ("…", "~"), ("–", "-")):
        text = text.replace(sign, plain)
    return text.encode("ascii", "replace").decode()
