"""SARIF 2.1.0: everything that has a place in the person's code, for code-scanning views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from launchscope import __version__
from launchscope.model import Check, Profile, SourceLine
from launchscope.report.documents.check import change_text
from launchscope.report.reporter import RenderOptions, Reporter
from launchscope.report.source_location import place_of

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
    rule: str
    title: str  # of the rule
    level: str
    text: str
    places: tuple[SourceLine, ...]


def render_check(check: Check, options: RenderOptions) -> bytes:
    """Failed limits at the line where the step begins, and what appeared at its own lines."""
    return _log(list(_of_check(check, options.folder)))


def render_profile(profile: Profile, options: RenderOptions) -> bytes:
    """Findings that have a place."""
    return _log(list(_of_profile(profile, options.folder)))


def _of_check(check: Check, folder: str) -> Iterator[_Result]:
    step = place_of(check.source, folder)
    failed = check.outcome == "failed" and not check.excused
    for limit in check.limits:
        if step is not None and limit.outcome in ("failed", "inconclusive"):
            level = "error" if limit.outcome == "failed" else "warning"
            level = "note" if check.excused else level
            text = f"{limit.metric} {limit.reason}"
            rule = f"limit/{limit.metric}"
            yield _Result(rule, f"{limit.metric} is within its limit", level, text, (step,))
    for change in check.changes:
        places = tuple(
            place for where in change.where if (place := place_of(where, folder)) is not None
        )
        if change.appeared and places:
            level = "error" if failed else "note"
            rule = f"new-{change.kind}"
            yield _Result(rule, _KINDS[change.kind], level, change_text(change), places)


def _of_profile(profile: Profile, folder: str) -> Iterator[_Result]:
    from launchscope.rules import find_rule

    for finding in profile.findings:
        place = place_of(finding.where, folder)
        if place is not None:
            rule = find_rule(finding.code)
            title = rule.title if rule is not None else finding.code
            text = f"{finding.title.rstrip('.')}. {finding.advice}".strip()
            yield _Result(finding.code, title, _LEVELS[finding.severity], text, (place,))


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
    first, *others = [_location(place) for place in result.places]
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


def _location(place: SourceLine) -> dict[str, Any]:
    """Paths below the working directory are relative to the root of the sources."""
    path = Path(place.file)
    if path.is_absolute():
        artifact = {"uri": path.as_uri()}
    else:
        artifact = {"uri": quote(path.as_posix()), "uriBaseId": _ROOT}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": place.line}}}


REPORTER = Reporter("sarif", (".sarif",), {Check: render_check, Profile: render_profile})
