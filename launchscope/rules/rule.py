"""What a rule is: a code, a function from Profile to findings, and a page that explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import cleandoc

from launchscope.model import Finding, Profile, Severity, SourceLine

Findings = Iterable[Finding]


@dataclass(frozen=True)
class Rule:
    """One rule. `doc` is the docstring of its file: the title and the page, in Markdown.

    `fixable`: what it finds is in the person's script, and they can change it.
    """

    code: str
    find: Callable[[Profile], Findings]
    doc: str | None  # None under `python -OO`
    fixable: bool = False

    def check(self, profile: Profile) -> list[Finding]:
        return list(self.find(profile))

    def finding(
        self,
        severity: Severity,
        title: str,
        advice: str = "",
        where: SourceLine | None = None,
        /,
        **evidence: object,
    ) -> Finding:
        """A finding of this rule. The title is a sentence without its period."""
        return Finding(self.code, severity, title, advice, where, evidence)

    @property
    def page(self) -> str:
        return cleandoc(self.doc or f"# {self.code}")

    @property
    def title(self) -> str:
        return self.page.partition("\n")[0].removeprefix("# ")
