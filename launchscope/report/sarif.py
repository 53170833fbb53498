"""SARIF 2.1.0: everything that names a line of code, for code scanning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from launchscope import __version__
from launchscope.model import Check, Profile, SourceLine
from launchscope.report.documents.check import change_text
from launchscope.report.reporter import RenderOptions, Reporter
from launchscope.report.source_location import in_repository

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"
_LEVELS = {"error": "error", "warning": "warning", "advice": "note", "info": "note"}
_KINDS = {
    "blocker": "A step has an operation that stops a capture, and the baseline did not have it",
    "op": "A step runs a device operation more often than the baseline",
    "kernel": "A step launches a kernel more often than the baseline",
}


@dataclass(frozen=True)
class _Result:
    """`title` is what the rule checks in general."""

    rule: str
    title: str
    level: str
    text: str
    lines: tuple[SourceLine, ...]


def render_check(check: Check, options: RenderOptions) -> bytes:
    """Failed limits at the line where the step begins, and changes at their own lines."""
    results = []
    step = in_repository(check.source, options.folder)
    for limit in check.limits:
        if step is not None and limit.outcome in ("failed", "inconclusive"):
            level = "error" if limit.outcome == "failed" else "warning"
            level = "note" if check.excused else level
            title, text = f"{limit.metric} is within its limit", f"{limit.metric} {limit.reason}"
            results.append(_Result(f"limit/{limit.metric}", title, level, text, (step,)))
    level = "error" if check.outcome == "failed" and not check.excused else "note"
    for change in check.changes:
        found = (in_repository(where, options.folder) for where in change.where)
        lines = tuple(line for line in found if line is not None)
        if change.appeared and lines:
            rule, title = f"new-{change.kind}", _KINDS[change.kind]
            results.append(_Result(rule, title, level, change_text(change), lines))
    return _log(results)


def render_profile(profile: Profile, options: RenderOptions) -> bytes:
    """Findings that name a line."""
    from launchscope.rules import find_rule

    results = []
    for finding in profile.findings:
        line = in_repository(finding.where, options.folder)
        if line is not None:
            rule = find_rule(finding.code)
            title = rule.title if rule is not None else finding.code
            text = f"{finding.title.rstrip('.')}. {finding.advice}".strip()
            level = _LEVELS[finding.severity]
            results.append(_Result(finding.code, title, level, text, (line,)))
    return _log(results)


def _log(results: list[_Result]) -> bytes:
    import msgspec

    titles = {result.rule: result.title for result in results}
    order = list(titles)
    driver = {
        "name": "launchscope",
        "semanticVersion": __version__,
        "rules": [
            {"id": rule, "shortDescription": {"text": title}} for rule, title in titles.items()
        ],
    }
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "results": [_result(result, order.index(result.rule)) for result in results],
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=1) + b"\n"


def _result(result: _Result, index: int) -> dict[str, Any]:
    first, *others = [_location(line) for line in result.lines]
    found: dict[str, Any] = {
        "ruleId": result.rule,
        "ruleIndex": index,
        "level": result.level,
        "message": {"text": result.text},
        "locations": [first],
    }
    if others:
        found["relatedLocations"] = others
    return found


def _location(line: SourceLine) -> dict[str, Any]:
    """Relative paths are relative to the root of the repository."""
    path = Path(line.file)
    if path.is_absolute():
        artifact = {"uri": path.as_uri()}
    else:
        artifact = {"uri": quote(path.as_posix()), "uriBaseId": _ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line.line}}}


REPORTER = Reporter("sarif", (".sarif",), {Check: render_check, Profile: render_profile})
