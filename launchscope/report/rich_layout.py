"""What reports on a terminal are made of: the panel on top, headings, indented lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

INDENT = (0, 0, 0, 2)


def screened(write: Callable[[Console, bool], None], options: Mapping[str, object]) -> str:
    """What `write(console, unicode)` prints. Options: `width` (80), `color`, `unicode` (True)."""
    from rich.console import Console

    width = options.get("width")
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
    write(console, unicode)
    # rich pads lines to the width; nobody wants that in a file or in a diff.
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    return text if unicode else _ascii(text)


def panel(
    badge: str, colour: str, headline: str, basis: str, title: str, *, unicode: bool
) -> RenderableType:
    """The answer in a box: badge on the left, what it is about on the right."""
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    text = Text(headline)
    if basis:
        text.append(f"\n{basis}", style="dim")
    return Panel(
        text,
        title=Text(f" {badge} ", style=f"bold {colour} reverse"),
        title_align="left",
        subtitle=Text(f" {title} ", style="dim"),
        subtitle_align="right",
        border_style=colour,
        box=box.ROUNDED if unicode else box.ASCII,
        padding=(0, 1),
    )


def heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def line(console: Console, text: str, style: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style), INDENT))


def item(console: Console, mark: str, text: str) -> None:
    """A line with a mark before it, wrapped under its own beginning."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style="dim"), Text(text))
    console.print(Padding(grid, INDENT))


def _ascii(text: str) -> str:
    # Each as wide as before, so that columns stay where they are.
    for sign, plain in ((" ± ", "+/-"), ("·", "-"), ("…", "~"), ("µ", "u"), ("–", "-")):
        text = text.replace(sign, plain)
    return text.encode("ascii", "replace").decode()
