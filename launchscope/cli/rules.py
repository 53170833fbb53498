"""launchscope rules [CODE]: the list of rules, or the page of one."""

from __future__ import annotations

from io import StringIO

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError


def rules(
    code: str | None = typer.Argument(None, metavar="CODE", help="A rule such as LS001."),
) -> int:
    """List the rules, or explain one of them."""
    from launchscope.rules import all_rules, find_rule

    if code is None:
        lines = [f"{rule.code}  {rule.title}" for rule in all_rules()]
        console().out("\n".join(lines) + "\n")
        return 0
    number = code.upper().removeprefix("LS")
    rule = find_rule(f"LS{number.lstrip('0').zfill(3)}" if number.isdecimal() else code)
    if rule is None:
        from difflib import get_close_matches

        near = get_close_matches(code.upper(), [known.code for known in all_rules()], n=1)
        raise UsageError(
            f"there is no rule {code}",
            hint=f"did you mean {near[0]}?" if near else "launchscope rules lists them",
        )
    heading, _, rest = rule.page.partition("\n")
    page = f"# {rule.code}: {heading.removeprefix('# ')}\n{rest}"
    terminal = console()
    if not terminal.has_color(terminal.stdout):
        terminal.out(page.rstrip() + "\n")
        return 0
    from rich.console import Console
    from rich.markdown import Markdown

    rich = Console(file=StringIO(), width=min(90, terminal.width), force_terminal=True)
    with rich.capture() as laid_out:
        rich.print(Markdown(page))
    terminal.out(laid_out.get())
    return 0
