"""launchscope docs [PAGE]: the pages of the documentation, which are installed with the package."""

from __future__ import annotations

from pathlib import Path

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError

PAGES = Path(__file__).parents[1] / "docs"


def docs(
    page: str | None = typer.Argument(
        None, metavar="[PAGE]", help="A page such as get-started. Default: list the pages."
    ),
) -> int:
    """List the pages of the documentation, or print one: formatted on a terminal, Markdown
    elsewhere."""
    pages = {path.stem: path for path in sorted(PAGES.glob("*.md"))}
    if page is None:
        titles = {name: path.read_text("utf-8").partition("\n")[0] for name, path in pages.items()}
        console().out("".join(f"{name:14}{title[2:]}\n" for name, title in titles.items()))
        return 0
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise UsageError(f"there is no page {page}", hint="launchscope docs lists the pages")
    text = pages[name].read_text("utf-8")
    console().out(_formatted(text) if console().has_color(console().stdout) else text)
    return 0


def _formatted(text: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    terminal = Console(width=console().width, force_terminal=True)
    with terminal.capture() as capture:
        terminal.print(Markdown(text, hyperlinks=False))
    return capture.get()
