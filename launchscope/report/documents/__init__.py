"""A value -> its Document: one file for each type of value, listed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from launchscope.model import Adoption, CheckResult, Comparison, Difference, Profile, Ranks
from launchscope.report.document import Commands, Document, Paragraph, Section
from launchscope.report.documents import (
    adoption,
    check,
    comparison,
    difference,
    profile,
    profile_brief,
    ranks,
)
from launchscope.report.documents.next_step import adopt_commands

# The second argument bounds long tables.
DOCUMENTS: dict[type, Callable[[Any, int], Document]] = {
    Profile: profile.document,
    Adoption: adoption.document,
    CheckResult: check.document,
    Comparison: comparison.document,
    Difference: difference.document,
    Ranks: ranks.document,
}


def document_of(
    value: object,
    top: int,
    next_commands: tuple[str, ...] = (),
    *,
    brief: bool = False,
    tight: bool = False,
    page: str = "",
) -> Document:
    """What a report of this value says, with the commands to type next at its end. A `brief` one
    of a Profile fits a screen and ends with the verdict; a `tight` one is shorter. `page` is where
    all of it was written."""
    commands, last = next_commands, tuple[Paragraph, ...]()
    if isinstance(value, Profile):
        commands = (*adopt_commands(value), *next_commands)
        last = (profile_brief.closing(value),)
    following = (Commands(commands),) if commands else ()
    if not (brief and isinstance(value, Profile)):
        made = DOCUMENTS[type(value)](value, top)
        section = Section("Next", (*following, *last))
        return replace(made, sections=(*made.sections, section)) if following else made
    made = profile_brief.document(value, tight=tight)
    more = profile_brief.not_shown(value, page, tight=tight)
    blocks = (*following, *((Paragraph(more, "dim"),) if more else ()), *last)
    return replace(made, sections=(*made.sections, Section("" if tight else "Next", blocks)))
