"""launchscope rules [CODE]: every rule, or the page of one."""

from __future__ import annotations

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError


def rules(
    code: str | None = typer.Argument(None, metavar="[CODE]", help="A rule such as LS001."),
) -> int:
    """List the rules, or explain one."""
    from launchscope.rules import all_rules, find_rule

    if code is None:
        console().out("".join(f"{rule.code}  {rule.title}\n" for rule in all_rules()))
        return 0
    rule = find_rule(code)
    if rule is None:
        raise UsageError(f"there is no rule {code}", hint="launchscope rules lists them")
    heading, _, rest = rule.page.partition("\n")
    page = f"# {rule.code}: {heading.removeprefix('# ')}\n{rest}"
    console().out(page.rstrip() + "\n")
    return 0
