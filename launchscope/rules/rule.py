"""What a rule is: a code, a function from Profile to findings, and a page that explains it.

The rules are the modules of `findings` that expose a RULE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from inspect import cleandoc

from msgspec import Struct
from msgspec.structs import replace

from launchscope.model import Finding, Profile, Severity, SourceLine
from launchscope.plugins import load_plugins

Findings = Iterable[Finding]
# Codes of former versions, and the rules that report today what they did.
FORMER_CODES = {
    "LS003": "LS002",
    "LS005": "LS001",
    "LS006": "LS004",
    "LS007": "LS002",
    "LS012": "LS010",
    "LS013": "LS010",
    "LS031": "LS030",
    "LS032": "LS033",
    "LS034": "LS004",
    "LS036": "LS009",
    "LS037": "LS008",
    "LS038": "LS030",
    "LS039": "LS009",
    "LS040": "LS004",
    "LS042": "LS030",
    "LS043": "LS030",
}


class Rule(Struct, frozen=True):
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
        library: SourceLine | None = None,
    ) -> Finding:
        """A finding of this rule. The title is a sentence without its period."""
        return Finding(self.code, severity, title, advice, where, library)

    @property
    def page(self) -> str:
        return cleandoc(self.doc or f"# {self.code}")

    @property
    def title(self) -> str:
        return self.page.partition("\n")[0].removeprefix("# ")


def rule(
    code: str, doc: str | None, *, fixable: bool = False
) -> Callable[[Callable[[Profile], Findings]], Rule]:
    """Makes a function that finds into the rule: `RULE`, the one constant of its file."""
    return lambda find: Rule(code, find, doc, fixable)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    found = load_plugins("launchscope.rules.findings", "RULE", Rule)
    return tuple(sorted(found, key=lambda rule: rule.code))


def find_rule(code: str) -> Rule | None:
    """The rule with this code or former code, whatever its case."""
    known = code.strip().upper()
    known = FORMER_CODES.get(known, known)
    return next((rule for rule in all_rules() if rule.code == known), None)


def with_current_codes(profile: Profile) -> Profile:
    """A saved Profile with the codes of today in place of former ones."""
    findings = tuple(
        replace(finding, code=FORMER_CODES.get(finding.code, finding.code))
        for finding in profile.findings
    )
    verdict = profile.verdict
    if verdict is not None:
        codes = (FORMER_CODES.get(code, code) for code in verdict.because)
        verdict = replace(verdict, because=tuple(dict.fromkeys(codes)))
    return replace(profile, findings=findings, verdict=verdict)
