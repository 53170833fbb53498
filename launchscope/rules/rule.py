"""What a rule is: a code, a function from Profile to findings, and a page that explains it.

The rules are the modules of `findings` that expose a RULE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from inspect import cleandoc

from launchscope.frozen import dataclass
from launchscope.model import Finding, Profile, Severity, SourceLine
from launchscope.plugins import load_plugins

Findings = Iterable[Finding]
# By the second last digit of the code.
GROUPS = (
    "What a graph gains",
    "Steps that differ",
    "What the GPU waits for",
    "The capture and its replay",
    "What was measured",
)


@dataclass(frozen=True)
class Rule:
    """One rule. `doc` is the docstring of its file: the title and the page, in Markdown.

    `fixable`: what it finds is in the person's script, and they can change it: the page has the
    code before and after.
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

    @property
    def group(self) -> str:
        """The heading under which lists of rules show it."""
        tens = self.code[-2:-1]
        return GROUPS[int(tens)] if tens.isdecimal() and int(tens) < len(GROUPS) else "More"


def rule(
    code: str, doc: str | None, *, fixable: bool = False
) -> Callable[[Callable[[Profile], Findings]], Rule]:
    """Makes a function that finds into the rule: `RULE`, the one constant of its file."""
    return lambda find: Rule(code, find, doc, fixable)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the files, which is that of the codes."""
    return load_plugins("launchscope.rules.findings", "RULE", Rule)


def find_rule(code: str) -> Rule | None:
    """The rule with this code, whatever its case."""
    return next((rule for rule in all_rules() if rule.code == code.strip().upper()), None)
