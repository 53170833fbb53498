"""The report as text, laid out for the width of a terminal or a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from launchscope.report import RenderOptions, Reporter, document, with_texts
from launchscope.report.documents import DOCUMENTS, document_of

_INDENT = 2
_GAP = 2  # between columns
_TOP = 8
_LONGEST_BAR = 50
# The narrowest that a column of each fit may become; `whole` ones stay as they are.
_NARROWEST = {"wrap": 12, "cut": 12, "cut_start": 16}
_LONGEST_WORD = 30  # longer ones are broken
_LONGEST_TEXT = 2000  # laying out a text takes more than its length
_STYLES: dict[document.Tone, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "calm": "cyan",
    "caution": "yellow",
    "bad": "bold red",
}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def render(value: object, options: RenderOptions) -> str:
    """Text of `width` columns, with colors where the options say so."""
    # rich pads lines to the width, which would only get in the way in a file or a diff.
    return "\n".join(line.rstrip() for line in _laid_out(value, options).splitlines()) + "\n"


def _laid_out(value: object, options: RenderOptions) -> str:
    stream = StringIO()
    console = Console(
        file=stream,
        width=options.width,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        force_jupyter=False,  # it would display each line in the notebook
        legacy_windows=False,
        _environ={},
    )
    report = document_of(value, options.top or _TOP, options.next_commands, brief=options.brief)
    shown = document.shortened(report, options.more) if options.brief else report
    _write(console, with_texts(shown, _bounded))
    return stream.getvalue()


def _bounded(text: str) -> str:
    """The text without its middle, if it is longer than people read."""
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} … {text[-half:]}"


def _write(console: Console, report: document.Document) -> None:
    console.print(_panel(report, console.width))
    for line in report.context:
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, _INDENT)))
    for section in report.sections:
        console.print()
        if section.heading:
            console.print(Text(section.heading, style="bold"))
        for index, block in enumerate(section.blocks):
            if index and isinstance(block, document.Table | document.Bars):
                console.print()
            for shown in _block(block, console.width - _INDENT):
                console.print(Padding(shown, (0, 0, 0, _INDENT)))
            if isinstance(block, document.Commands):
                for line in block.lines:  # the terminal wraps it, so that it is copied as one line
                    console.print(Text(" " * _INDENT + line, style="cyan"), soft_wrap=True)


def _panel(report: document.Document, width: int) -> Panel:
    """The answer in a box: badge on the left, what was measured on the right."""
    text = Text(report.headline)
    if report.basis:
        text.append(f"\n{report.basis}", style="dim")
    color = _STYLES[report.tone].removeprefix("bold ")
    title = Text(f" {report.title} ", style="dim")
    title.truncate(width - 6, overflow="ellipsis")
    return Panel(
        text,
        title=Text(f" {report.badge} ", style=f"bold {color} reverse"),
        title_align="left",
        subtitle=title,
        subtitle_align="right",
        border_style=color,
    )


def _block(block: document.Block, width: int) -> Iterator[RenderableType]:
    match block:
        case document.Paragraph(text, tone):
            yield Text(text, style=_STYLES[tone])
        case document.Items(texts, numbered):
            marks = [f"{i}." if numbered else "-" for i in range(1, len(texts) + 1)]
            yield _grid(1, [(Text(mark, style="dim"), Text(t)) for mark, t in zip(marks, texts)])
        case document.Entries(entries):
            yield _grid(2, [(Text(e.code, style=_STYLES[e.tone]), _entry(e)) for e in entries])
        case document.Table():
            for index, widths in enumerate(_parts(block, width)):
                yield from [Text("")] if index else []
                yield _table(block, widths)
            if block.rows_left:
                yield Text(f"and {block.rows_left} more", style="dim")
        case document.Bars():
            yield _bars(block, width)
        case document.Diff():
            for line in block.shown:  # whole, so that it can be copied
                style = _STYLES[block.tone(line)].removeprefix("bold ")
                yield Text(line, style=style, no_wrap=True, overflow="ignore")


def _grid(gap: int, rows: list[tuple[Text, Text]]) -> Table:
    """A mark and a text that wraps under its own beginning."""
    grid = Table.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")  # a path is one word, and its line is at its end
    for row in rows:
        grid.add_row(*row)
    return grid


def _entry(entry: document.Entry) -> Text:
    text = Text.assemble((f"{entry.where}  " if entry.where else "", "bold"), entry.title)
    if entry.advice:
        text.append(f"\n{entry.advice}", style="dim" if entry.tone == "dim" else "")
    return text


def _parts(table: document.Table, width: int) -> list[dict[int, int]]:
    """The table in as few parts as fit, each as the widths of some of its columns.

    The key columns are in all parts. Columns of figures are never narrowed; those
    of texts wrap or are cut, and the columns that still do not fit go below.
    """
    wanted, least = [], []
    for index, column in enumerate(table.columns):
        texts = [column.heading, *(row[index].text for row in table.rows)]
        wanted.append(max(1, *map(cell_len, texts)))
        narrowest = _NARROWEST.get(column.fit, wanted[-1])
        if column.fit == "wrap":
            longest = max(cell_len(word) for text in texts for word in text.split() or [""])
            narrowest = max(narrowest, min(longest, _LONGEST_WORD))
        least.append(min(wanted[-1], narrowest))
    keys = [index for index, column in enumerate(table.columns) if column.key]
    parts = [list(keys)]
    for index in (i for i in range(len(table.columns)) if i not in keys):
        taken = sum(least[i] + _GAP for i in parts[-1])
        if len(parts[-1]) > len(keys) and taken + least[index] > width:
            parts.append(list(keys))
        parts[-1].append(index)
    return [_widths(sorted(part), wanted, least, width - _GAP * (len(part) - 1)) for part in parts]


def _widths(part: list[int], wanted: list[int], least: list[int], room: int) -> dict[int, int]:
    """The width each column wants; if that is too much, the widest columns shrink first."""
    widths = {index: wanted[index] for index in part}
    while sum(widths.values()) > room:
        flexible = [index for index in part if widths[index] > least[index]]
        if not flexible:
            break
        widths[max(flexible, key=widths.__getitem__)] -= 1
    return widths


def _table(table: document.Table, widths: dict[int, int]) -> Table:
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.show_header = any(column.heading for column in table.columns)
    grid.header_style = "dim"
    for index, width in widths.items():
        column = table.columns[index]
        grid.add_column(Text(column.heading), width=width, justify=column.align, overflow="fold")
    figures = [index for index in widths if not table.columns[index].key]
    cut = {index: _cut(table, index, width) for index, width in widths.items()}
    for row in table.rows:
        if figures and not any(row[index].text for index in figures):  # it is in another part
            continue
        cells = ((cut[index].get(row[index].text, row[index].text), row[index]) for index in widths)
        grid.add_row(*(Text(text, style=_STYLES[cell.tone]) for text, cell in cells))
    return grid


def _cut(table: document.Table, index: int, width: int) -> dict[str, str]:
    """The texts of a column that are too long, by themselves: without their end (paths: without
    their beginning), or without a part elsewhere, so that they stay different. Those that would not
    are missing, and take several lines."""
    fit, room, third = table.columns[index].fit, width - 1, max(width // 3, 1)
    texts = {row[index].text for row in table.rows if cell_len(row[index].text) > width}
    longest = max(map(len, texts), default=0)
    # How much of the beginning is kept, and from where the rest, which may have to end early.
    ways = [(room, longest) if fit == "cut" else (0, -room)]
    ways += sorted(zip(range(1, room), range(1 - room, 0)), key=lambda way: abs(sum(way)))
    ways += [(third, start) for start in range(third, longest, third)]
    cut: dict[str, str] = {}
    for head, start in ways if fit in ("cut", "cut_start") else ():
        shown = {text: f"{text[:head]}…{text[start:]}" for text in texts - cut.keys()}
        shown = {text: s if len(s) <= width else f"{s[:room]}…" for text, s in shown.items()}
        often = Counter([*shown.values(), *cut.values()])
        cut |= {text: short for text, short in shown.items() if often[short] == 1}
    return cut


def _bars(block: document.Bars, width: int) -> Table:
    """The table of the bars, with a column for what is drawn in the room that is left."""
    bare = block.table()
    taken = sum(_parts(bare, width)[0].values()) + _GAP * len(bare.columns)
    longest = max(10, min(_LONGEST_BAR, width - taken))
    table = block.table(lambda share_pct: _bar(share_pct / 100.0 * longest, longest))
    return _table(table, _parts(table, width)[0])


def _bar(cells: float, longest: int) -> str:
    whole, rest = divmod(round(max(0.0, min(float(longest), cells)) * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


REPORTER = Reporter("terminal", (".txt",), dict.fromkeys(DOCUMENTS, render))
