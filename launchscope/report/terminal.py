"""The report as text, laid out for the width of a terminal or a page."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from launchscope.report.document import (
    Bars,
    Block,
    Commands,
    Document,
    Entries,
    Entry,
    Items,
    Paragraph,
    Plot,
    Table,
    Tone,
)
from launchscope.report.documents import DOCUMENTS, document_of
from launchscope.report.plot import text_plot
from launchscope.report.reporter import RenderOptions, Reporter
from launchscope.report.table_layout import Part, parts_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_INDENT = 2
_GAP = 2  # between columns
_TOP = 8
_LONGEST_BAR = 50
_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "calm": "cyan",
    "caution": "yellow",
    "bad": "bold red",
}
_CURVES = ("red", "green", "yellow", "cyan")
_EIGHTHS = " ▏▎▍▌▋▊▉"
# Sign by sign, so that columns stay where they are.
_ASCII = str.maketrans("╭╮╰╯│└─┊·…µ–→●○▲△◐█▏▎▍▌▋▊▉", "++++|+-:-~u->ER34*#   ####")


def render(value: object, options: RenderOptions) -> str:
    """Text of `width` columns, with colors and Unicode where the options say so."""
    from rich.console import Console

    document = document_of(value, options.top or _TOP, options.next_commands)
    stream = StringIO()
    console = Console(
        file=stream,
        width=options.width,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    _write(console, document)
    text = stream.getvalue()
    if not options.unicode:
        text = text.replace(" ± ", "+/-").translate(_ASCII).encode("ascii", "replace").decode()
    # rich pads lines to the width, which would only get in the way in a file or a diff.
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _write(console: Console, document: Document) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(_panel(document, console.width))
    for line in document.context:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, _INDENT)))
    for section in document.sections:
        console.print()
        console.print(Text(section.heading, style="bold"))
        for index, block in enumerate(section.blocks):
            if index and isinstance(block, Table | Bars | Plot):
                console.print()
            for shown in _block(block, console.width - _INDENT):
                console.print(Padding(shown, (0, 0, 0, _INDENT)))


def _panel(document: Document, width: int) -> RenderableType:
    """The answer in a box: badge on the left, what was measured on the right."""
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    text = Text(document.headline)
    if document.basis:
        text.append(f"\n{document.basis}", style="dim")
    color = _STYLES[document.tone].removeprefix("bold ")
    title = Text(f" {document.title} ", style="dim")
    title.truncate(width - 6, overflow="ellipsis")
    return Panel(
        text,
        title=Text(f" {document.badge} ", style=f"bold {color} reverse"),
        title_align="left",
        subtitle=title,
        subtitle_align="right",
        border_style=color,
        box=box.ROUNDED,
        padding=(0, 1),
    )


def _block(block: Block, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    match block:
        case Paragraph(text, tone):
            yield Text(text, style=_STYLES[tone])
        case Items(texts, numbered):
            marks = [f"{i}." if numbered else "-" for i in range(1, len(texts) + 1)]
            yield _grid(1, [(Text(mark, style="dim"), Text(t)) for mark, t in zip(marks, texts)])
        case Entries(entries):
            yield _grid(2, [(Text(e.code, style=_STYLES[e.tone]), _entry(e)) for e in entries])
        case Table():
            for index, part in enumerate(parts_of(block, width, _GAP)):
                yield from [Text("")] if index else []
                yield _table(block, part)
            if block.rows_left:
                yield Text(f"and {block.rows_left} more", style="dim")
        case Bars():
            yield _bars(block, width)
        case Plot():
            yield from _plot(block, width)
        case Commands(lines):
            yield Text("\n".join(lines), style="cyan")


def _grid(gap: int, rows: list[tuple[RenderableType, RenderableType]]) -> RenderableType:
    """A mark and a text that wraps under its own beginning."""
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")  # a path is one word, and its line is at its end
    for row in rows:
        grid.add_row(*row)
    return grid


def _entry(entry: Entry) -> RenderableType:
    from rich.text import Text

    text = Text()
    if entry.where:
        text.append(f"{entry.where}  ", style="bold")
    text.append(entry.title)
    if entry.advice:
        text.append(f"\n{entry.advice}", style="dim" if entry.tone == "dim" else "")
    return text


def _table(table: Table, part: Part) -> RenderableType:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="dim",
        show_header=table.has_heading,
    )
    for index, width in part.widths.items():
        column = table.columns[index]
        grid.add_column(
            column.heading,
            width=width,
            justify=column.align,
            no_wrap=column.fit != "wrap",
            overflow="fold" if column.fit == "wrap" else "ellipsis",
        )
    for row in table.rows:
        cells = []
        for index, width in part.widths.items():
            text = row[index].text
            if table.columns[index].fit == "cut_start" and len(text) > width:
                text = "…" + text[1 - width :]
            cells.append(Text(text, style=_STYLES[row[index].tone]))
        grid.add_row(*cells)
    return grid


def _bars(block: Bars, width: int) -> RenderableType:
    """The table of the bars, with a column for what is drawn in the room that is left."""
    bare = block.table(lambda bar: "")
    taken = sum(parts_of(bare, width, _GAP)[0].widths.values()) + _GAP * len(bare.columns)
    longest = max(10, min(_LONGEST_BAR, width - taken))
    most = 100.0 if block.stacked else max(bar.share_pct or 0.0 for bar in block.bars) or 1.0
    table = block.table(lambda bar: _bar((bar.share_pct or 0.0) / most * longest, longest))
    return _table(table, parts_of(table, width, _GAP)[0])


def _bar(cells: float, longest: int) -> str:
    whole, rest = divmod(round(max(0.0, min(float(longest), cells)) * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _plot(plot: Plot, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    for cells in text_plot(plot, width):
        line = Text(no_wrap=True, overflow="ignore")
        for cell in cells:
            line.append(cell.sign, style="" if cell.series is None else _CURVES[cell.series % 4])
        yield line


REPORTER = Reporter("terminal", (".txt",), dict.fromkeys(DOCUMENTS, render))
