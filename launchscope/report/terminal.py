"""The report a person reads first: verdict, why, what it costs, what to change."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from launchscope.model import Finding, Profile
from launchscope.report.content import Content, Part, content_of
from launchscope.report.reporter import Reporter

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
_INDENT = (0, 0, 0, 2)


def render(profile: Profile, /, **options: object) -> str:
    """Text for a terminal. Options: `width` (80), `color`, `unicode` (True), `top` kernels (8),
    `next_commands` (what to type next)."""
    from rich.console import Console

    width, top = options.get("width"), options.get("top")
    commands = options.get("next_commands")
    content = content_of(
        profile,
        top=top if isinstance(top, int) else 8,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    color = options.get("color") is True
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
    _write(console, content, unicode=options.get("unicode") is not False)
    # rich pads lines to the width; nobody wants that in a file or in a diff.
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    return text if options.get("unicode") is not False else _ascii(text)


def _write(console: Console, content: Content, *, unicode: bool) -> None:
    console.print(_verdict(content, unicode=unicode))
    for line in content.context:
        _print(console, line, style="dim")
    if content.why:
        _heading(console, "Why")
        for finding in content.why:
            _finding(console, finding)
    if content.rows:
        console.print()
        console.print(_table(content))
    if content.parts:
        _heading(console, f"Where the iteration goes ({content.iteration})")
        console.print(_bars(content.parts, console.width, unicode=unicode))
    if content.costs:
        _heading(console, "What it costs")
        console.print(_pairs(content.costs))
    if content.changes:
        _heading(console, "What to change")
        for finding in content.changes:
            _finding(console, finding)
    if content.how:
        _heading(console, "How")
        _how(console, content.how)
    if content.kernels:
        _heading(console, content.kernel_heading)
        console.print(_kernels(content, console.width))
    if content.notes:
        _heading(console, "Notes")
        for note in content.notes:
            _item(console, "-", note)
    if content.next:
        _heading(console, "Next")
        for command in content.next:
            _print(console, command, style="cyan")


def _verdict(content: Content, *, unicode: bool) -> RenderableType:
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    colour = _COLOURS.get(content.badge, "yellow")
    text = Text(content.headline)
    if content.basis:
        text.append(f"\n{content.basis}", style="dim")
    return Panel(
        text,
        title=Text(f" {content.badge} ", style=f"bold {colour} reverse"),
        title_align="left",
        subtitle=Text(f" {content.title} ", style="dim"),
        subtitle_align="right",
        border_style=colour,
        box=box.ROUNDED if unicode else box.ASCII,
        padding=(0, 1),
    )


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def _print(console: Console, text: str, style: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style), _INDENT))


def _item(console: Console, mark: str, text: str) -> None:
    """A line with a mark before it, wrapped under its own beginning."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(Text(mark, style="dim"), Text(text))
    console.print(Padding(grid, _INDENT))


def _finding(console: Console, finding: Finding) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    said = Text()
    if finding.where:
        said.append(f"{finding.where}  ", style="bold")
    said.append(finding.title)
    if finding.advice:
        said.append("\n" + finding.advice, style="dim" if finding.severity == "info" else "")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(Text(finding.code, style=_SEVERITIES[finding.severity]), said)
    console.print(Padding(grid, _INDENT))


def _table(content: Content) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    replayed = any(row.replay or row.change for row in content.rows)
    table = Table(
        box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold", show_header=replayed
    )
    table.add_column("", no_wrap=True)
    table.add_column("eager", justify="right", no_wrap=True)
    if replayed:
        table.add_column(content.replay_heading, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for row in content.rows:
        cells = [Text(row.label), _cell(row.eager)]
        if replayed:
            cells += [_cell(row.replay), Text(row.change, style="bold")]
        table.add_row(*cells)
    return Padding(table, _INDENT)


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
    return Padding(grid, _INDENT)


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
    return Padding(grid, _INDENT)


def _how(console: Console, how: str) -> None:
    steps, _, code = how.partition("\n\n")
    for step in steps.splitlines():
        number, _, text = step.partition(" ")
        _item(console, number, text)
    if code:
        from rich.text import Text

        console.print()
        for line in code.splitlines():
            console.print(Text("     " + line, style="cyan"), no_wrap=True, overflow="ignore")


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
    left = width - _INDENT[3]
    for heading, cells in columns:
        wide = max(map(len, [heading, *cells]))
        left -= wide + 2
        justify: JustifyMethod = "left" if heading == "line" else "right"
        table.add_column(heading, width=wide, justify=justify, no_wrap=True)
    table.add_column("kernel", width=max(10, left), no_wrap=True, overflow="ellipsis")
    for row in zip(*(cells for _, cells in columns), (k.name for k in content.kernels)):
        table.add_row(*map(Text, row))
    if content.kernels_left:
        more = Text(f"and {content.kernels_left} more", style="dim")
        table.add_row(*[""] * len(columns), more)
    return Padding(table, _INDENT)


def _end_of(place: str, width: int) -> str:
    """A file:line cut on the left: its end is what tells."""
    return place if len(place) <= width else "…" + place[1 - width :]


def _ascii(text: str) -> str:
    # Each as wide as before, so that columns stay where they are.
    for sign, plain in ((" ± ", "+/-"), ("·", "-"), ("…", "~"), ("µ", "u")):
        text = text.replace(sign, plain)
    return text.encode("ascii", "replace").decode()


REPORTER = Reporter("terminal", (".txt",), render)
