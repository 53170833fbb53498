"""What a rule is: a code, a function from Profile to findings, and a page that explains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc

from launchscope.model import Finding, Profile


@dataclass(frozen=True)
class Rule:
    """One rule. `doc` is the docstring of its file: the title and the page, in Markdown.

    `fixable`: what it finds is in the person's script, and they can change it.
    """

    code: str
    check: Callable[[Profile], list[Finding]]
    doc: str | None  # None under `python -OO`
    fixable: bool = False

    @property
    def page(self) -> str:
        return cleandoc(self.doc or f"# {self.code}")

    @property
    def title(self) -> str:
        return self.page.partition("\n")[0].removeprefix("# ")
