"""The report a person reads first: verdict, why, what it costs, what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launchscope.model import Check, Comparison, Difference, Finding, Profile, Ranks
from launchscope.report.check.terminal import render as render_check
from launchscope.report.comparison.terminal import render as render_comparison
from launchscope.report.content import Content, Part, content_of
from launchscope.report.reporter import Reporter
from launchscope.report.rich_layout import INDENT, heading, item, line, panel, screened
from launchscope.report.table_report import terminal as render_sheet
from launchscope.wording import place

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType

_COLOURS = {
    "ADOPT": "green",
    "ADOPT AFTER FIXES": "yellow",
    "ADOPT, ONE GRAPH PER SHAPE": "yellow",
    "ALREADY GRAPHED": "cyan",
    "STAY EAGER": "cyan",
    "UNSAFE": "red",
}
_SEVERITIES = {"error": "bold red", "warning": "yellow", "advice": "green", "info": "dim"}
_PARTS = ("green", "red", "yellow", "magenta", "blue", "white")
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LINE_WIDTH = 24  # of the column of source lines


def render(profile: Profile, /, **options: object) -> str:
    """Text for a terminal. Options: `width` (80), `color`, `unicode` (True), `top` kernels (8),
    `next_commands` (what to type next)."""
    top = options.get("top")
    commands = options.get("next_commands")
    content = content_of(
        profile,
        top=top if isinstance(top, int) else 8,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return screened(lambda console, unicode: _write(console, content, unicode=unicode), options)


def _write(console: Console, content: Content, *, unicode: bool) -> None:
    console.print(_verdict(content, unicode=unicode))
    for text in content.context:
        line(console, text, style="dim")
    if content.why:
        heading(console, "Why")
        for finding in content.why:
            _finding(console, finding)
    if content.rows:
        console.print()
        console.print(_table(content))
    if content.parts:
        heading(console, f"Where the iteration goes ({content.iteration})")
        console.print(_bars(content.parts, console.width, unicode=unicode))
    if content.costs:
        heading(console, "What it costs")
        console.print(_pairs(content.costs))
    if content.changes:
        heading(console, "What to change")
        for finding in content.changes:
            _finding(console, finding)
    if content.instructions:
        heading(console, "How")
        for number, step in enumerate(content.instructions, 1):
            item(console, f"{number}.", step)
    if content.kernels:
        heading(console, content.kernel_heading)
        console.print(_kernels(content, console.width))
    if content.notes:
        heading(console, "Notes")
        for note in content.notes:
            item(console, "-", note)
    if content.next:
        heading(console, "Next")
        for command in content.next:
            line(console, command, style="cyan")


def _verdict(content: Content, *, unicode: bool) -> RenderableType:
    colour = _COLOURS.get(content.badge, "yellow")
    return panel(
        content.badge, colour, content.headline, content.basis, content.title, unicode=unicode
    )


def _finding(console: Console, finding: Finding) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    said = Text()
    if finding.where:
        said.append(f"{place(finding.where)}  ", style="bold")
    said.append(finding.title)
    if finding.advice:
        said.append("\n" + finding.advice, style="dim" if finding.severity == "info" else "")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")  # a path is one word, and its line stands at its end
    grid.add_row(Text(finding.code, style=_SEVERITIES[finding.severity]), said)
    console.print(Padding(grid, INDENT))


def _table(content: Content) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    replayed = any(row.replay or row.change for row in content.rows)
    table = Table(
        box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold", show_header=replayed
    )
    table.add_column("", overflow="fold")  # the one that may wrap: figures are not to be cut
    table.add_column("eager", justify="right", no_wrap=True)
    if replayed:
        table.add_column(content.replay_heading, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for row in content.rows:
        cells = [Text(row.label), _cell(row.eager)]
        if replayed:
            cells += [_cell(row.replay), Text(row.change, style="bold")]
        table.add_row(*cells)
    return Padding(table, INDENT)


def _cell(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style="dim" if text == "not measured" else "")


def _bars(parts: tuple[Part, ...], width: int, *, unicode: bool) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    longest = max(10, min(50, width - 52))
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(width=longest)
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    for i, part in enumerate(parts):
        grid.add_row(
            Text(part.label),
            Text(_bar(part.share_pct, longest, unicode=unicode), style=_PARTS[i % len(_PARTS)]),
            _cell(part.duration),
            Text(f"{part.share_pct:.0f} %" if part.measured else ""),
        )
    return Padding(grid, INDENT)


def _bar(share_pct: float, longest: int, *, unicode: bool) -> str:
    cells = max(0.0, min(100.0, share_pct)) / 100.0 * longest
    if not unicode:
        return "#" * round(cells)
    whole, rest = divmod(round(cells * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _pairs(pairs: tuple[tuple[str, str], ...]) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table

    grid = Table.grid(padding=(0, 3))
    grid.add_column()
    grid.add_column(justify="right")
    for label, value in pairs:
        grid.add_row(label, value)
    return Padding(grid, INDENT)


def _kernels(content: Content, width: int) -> RenderableType:
    """The columns have fixed widths: rich would let a long name squeeze the figures away."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    columns = [
        ("count", [kernel.count for kernel in content.kernels]),
        ("time", [kernel.total for kernel in content.kernels]),
        ("share", [kernel.share for kernel in content.kernels]),
        ("line", [_end_of(kernel.where, _LINE_WIDTH) for kernel in content.kernels]),
    ]
    if not any(columns[-1][1]):
        del columns[-1]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    left = width - INDENT[3]
    for title, cells in columns:
        wide = max(map(len, [title, *cells]))
        left -= wide + 2
        justify: JustifyMethod = "left" if title == "line" else "right"
        table.add_column(title, width=wide, justify=justify, no_wrap=True)
    table.add_column("kernel", width=max(10, left), no_wrap=True, overflow="ellipsis")
    for row in zip(*(cells for _, cells in columns), (k.name for k in content.kernels)):
        table.add_row(*map(Text, row))
    if content.kernels_left:
        more = Text(f"and {content.kernels_left} more", style="dim")
        table.add_row(*[""] * len(columns), more)
    return Padding(table, INDENT)


def _end_of(place: str, width: int) -> str:
    """A file:line cut on the left: its end is what tells."""
    return place if len(place) <= width else "…" + place[1 - width :]


REPORTER = Reporter(
    "terminal",
    (".txt",),
    {
        Profile: render,
        Check: render_check,
        Comparison: render_comparison,
        Difference: render_sheet,
        Ranks: render_sheet,
    },
)
