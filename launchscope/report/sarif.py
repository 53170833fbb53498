"""SARIF 2.1.0: everything that names a line of code, for code scanning."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import quote

from launchscope import __version__
from launchscope.gate.metrics import label
from launchscope.gate.wording import labeled
from launchscope.model import CheckResult, Profile, SourceLine
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.check import KINDS, change_text
from launchscope.report.json import encoded
from launchscope.rules import find_rule
from launchscope.wording import installed

_LINK = re.compile(r"\](?=\()")  # viewers make `[text](target)` a link


def _unlinked(text: str) -> str:
    return _LINK.sub("] ", text)


class _Log:
    """A run of launchscope with its results and the rules that they name."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.titles: dict[str, str] = {}  # what each rule checks in general
        self.results: list[dict[str, Any]] = []

    def add(self, rule: str, title: str, level: str, text: str, *lines: SourceLine | None) -> None:
        """A result at the first line. Without any there is none: GitHub would refuse the file."""
        locations = [found for found in map(self._location, lines) if found is not None]
        if not locations:
            return
        self.titles[rule] = _unlinked(title)
        first, *others = locations
        result = {
            "ruleId": rule,
            "ruleIndex": list(self.titles).index(rule),
            "level": level,
            "message": {"text": _unlinked(text)},
            "locations": [first],
        }
        self.results.append(result | ({"relatedLocations": others} if others else {}))

    def _location(self, line: SourceLine | None) -> dict[str, Any] | None:
        """A line of the repository or of an installed library; no other path leaves the machine."""
        if line is None or line.line < 1:  # GitHub would refuse the file
            return None
        path = os.path.normpath(line.file)
        base, file = "%SITEPACKAGES%", installed(path)
        if file == path:  # of no environment, which may lie in the repository
            own = self.options.in_repository(line)
            if own is None:
                return None
            base, file = "%SRCROOT%", own.file
        uri = quote(file.replace(os.sep, "/"), errors="backslashreplace")
        return {
            "physicalLocation": {
                "artifactLocation": {"uri": uri, "uriBaseId": base},
                "region": {"startLine": line.line},
            }
        }

    def encoded(self) -> bytes:
        driver = {
            "name": "launchscope",
            "semanticVersion": __version__,
            "rules": [
                {"id": rule, "shortDescription": {"text": title}}
                for rule, title in self.titles.items()
            ],
        }
        log = {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": self.results}],
        }
        return encoded(log)


def render_check(check: CheckResult, options: RenderOptions) -> bytes:
    """Failed limits at the line where the step begins, and changes at their own lines."""
    log = _Log(options)
    for limit in check.limits:
        if limit.outcome in ("failed", "inconclusive"):
            level = "note" if check.written else "error" if limit.outcome == "failed" else "warning"
            title, text = f"within the limit: {label(limit.metric)}", labeled(limit)
            log.add(f"limit/{limit.metric}", title, level, text, check.source)
    level = "error" if check.outcome == "failed" and not check.written else "note"
    for change in check.changes:
        if change.appeared:
            title = f"not more than in the baseline: {KINDS[change.kind]}"
            log.add(f"new-{change.kind}", title, level, change_text(change), *change.where)
    return log.encoded()


def render_profile(profile: Profile, options: RenderOptions) -> bytes:
    """Findings that name a line; one of a library is related to the person's that leads there."""
    log = _Log(options)
    for finding in profile.findings:
        rule = find_rule(finding.code)
        title = rule.title if rule is not None else finding.code
        text = f"{finding.title.rstrip('.')}. {finding.advice}".strip()
        level = finding.severity if finding.severity in ("error", "warning") else "note"
        log.add(finding.code, title, level, text, finding.where, finding.library)
    return log.encoded()


REPORTER = Reporter(
    "sarif",
    (".sarif", ".sarif.json"),
    {CheckResult: render_check, Profile: render_profile},
)
