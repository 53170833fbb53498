"""launchscope rules [CODE or WORDS]: every rule, those with some words, or the page of one."""

from __future__ import annotations

import typer

from launchscope.cli.console import console
from launchscope.errors import UsageError


def rules(
    words: list[str] | None = typer.Argument(
        None, metavar="[CODE or WORDS]", help="A rule such as LS001, or words to search for."
    ),
) -> int:
    """List the rules, search them, or explain one."""
    from launchscope.rules import all_rules, find_rule

    asked = " ".join(words or ())
    number = asked.upper().removeprefix("LS")
    rule = find_rule(f"LS{number.lstrip('0').zfill(3)}" if number.isdecimal() else asked)
    if rule is not None:
        heading, _, rest = rule.page.partition("\n")
        page = f"# {rule.code}: {heading.removeprefix('# ')}\n{rest}"
        console().out(page.rstrip() + "\n")
        return 0
    looked_for = asked.lower().split()
    found = [rule for rule in all_rules() if all(word in rule.page.lower() for word in looked_for)]
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(asked.upper(), [known.code for known in all_rules()], n=1)
        raise UsageError(
            f"there is no rule {asked}, and none that mentions it",
            hint=f"did you mean {near[0]}?" if near else "launchscope rules lists them",
        )
    console().out("".join(f"{rule.code}  {rule.title}\n" for rule in found))
    return 0
