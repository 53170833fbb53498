"""What a rule is: a code, a title, a function from Profile to findings, and a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc

from launchscope.model import Finding, Profile


@dataclass(frozen=True)
class Rule:
    """One rule. `doc` is its file's docstring, which is its documentation page (Markdown)."""

    code: str
    title: str
    check: Callable[[Profile], list[Finding]]
    doc: str | None

    @property
    def page(self) -> str:
        return cleandoc(self.doc or "")
