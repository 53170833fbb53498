"""launchscope rules [CODE]: the list of rules, or the page of one."""

from __future__ import annotations

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError


def rules(code: str | None = typer.Argument(None, help="A rule such as LS001.")) -> int:
    """List the rules, or explain one of them."""
    from launchscope.rules import all_rules, find_rule

    if code is None:
        lines = [f"{rule.code}  {rule.title}" for rule in all_rules()]
        console().out("\n".join(lines) + "\n")
        return 0
    rule = find_rule(code)
    if rule is None:
        from difflib import get_close_matches

        codes = [known.code for known in all_rules()]
        number = code.upper().removeprefix("LS")
        meant = f"LS{int(number):03}" if number.isdecimal() else ""
        near = [meant] if meant in codes else get_close_matches(code.upper(), codes, n=1)
        raise UsageError(
            f"there is no rule {code}",
            hint=f"did you mean {near[0]}?" if near else "launchscope rules lists them",
        )
    page = rule.page.split("\n", 1)
    heading = page[0].removeprefix("# ")
    console().out(_rendered(f"# {rule.code}: {heading}\n{page[1] if len(page) > 1 else ''}"))
    return 0


def _rendered(page: str) -> str:
    """The page as it is, or with its Markdown laid out where colors are shown."""
    terminal = console()
    if not terminal.color:
        return page.rstrip() + "\n"
    from io import StringIO

    from rich.console import Console
    from rich.markdown import Markdown

    stream = StringIO()
    Console(file=stream, width=min(90, terminal.width), force_terminal=True).print(Markdown(page))
    return stream.getvalue()
