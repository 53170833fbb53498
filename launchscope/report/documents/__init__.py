"""A value -> its Document: one file for each type of value, listed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from launchscope.model import Adoption, CheckResult, Comparison, Difference, Profile, Ranks, Watch
from launchscope.report.document import Commands, Document, Section
from launchscope.report.documents import adoption, check, comparison, difference, profile, ranks
from launchscope.report.documents.next_step import adopt_commands
from launchscope.report.documents.watch import document as watch_document

# The second argument bounds long tables.
DOCUMENTS: dict[type, Callable[[Any, int], Document]] = {
    Profile: profile.document,
    Adoption: adoption.document,
    CheckResult: check.document,
    Comparison: comparison.document,
    Difference: difference.document,
    Ranks: ranks.document,
    Watch: watch_document,
}


def document_of(
    value: object, top: int, next_commands: tuple[str, ...] = (), *, brief: bool = False
) -> Document:
    """What a report of this value says, with the commands to type next at its end. `brief`: it will
    be shortened."""
    commands = next_commands
    if not isinstance(value, Profile):
        made = DOCUMENTS[type(value)](value, top)
    else:
        made = profile.document(value, top, brief=brief)
        commands = (*adopt_commands(value), *next_commands)
    following = Section("Next", (Commands(commands),))
    return replace(made, sections=(*made.sections, following)) if commands else made
