"""launchscope docs [PAGE]: the pages of the documentation, which are installed with the package,
and the JSON Schema of each saved report."""

from __future__ import annotations

from pathlib import Path

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError

PAGES = Path(__file__).parents[1] / "docs"
_SCHEMA = ".schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"  # which msgspec writes


def docs(
    page: str | None = typer.Argument(
        None,
        metavar="[PAGE]",
        help="A page such as get-started, or profile.schema.json: the JSON "
        "Schema of that report. Default: list the pages.",
    ),
) -> int:
    """List the pages of the documentation, or print one: formatted on a terminal, Markdown
    elsewhere."""
    pages = {path.stem: path for path in sorted(PAGES.glob("*.md"))}
    if page is not None and page.endswith(_SCHEMA):
        return _print_schema(page.removesuffix(_SCHEMA))
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


def _print_schema(noun: str) -> int:
    import msgspec

    from launchscope.model import Profile
    from launchscope.parser.files import SAVED

    values = {"profile": Profile, **SAVED}
    if noun not in values:
        raise UsageError(f"there is no report {noun}", hint=f"one of {', '.join(values)}")
    schema = {"$schema": _DIALECT, **msgspec.json.schema(values[noun])}
    console().out(msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n")
    return 0


def _formatted(text: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    terminal = Console(width=console().width, force_terminal=True)
    with terminal.capture() as capture:
        terminal.print(Markdown(text, hyperlinks=False))
    return capture.get()
