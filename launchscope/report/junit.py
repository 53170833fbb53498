"""JUnit XML: one test case per limit of a Check, or per finding of a Profile.

An inconclusive limit passes, with its reason as output. Source lines are part of the texts,
because strict readers accept no attributes for them.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from launchscope.model import Check, Finding, LimitCheck, Profile
from launchscope.report.documents.check import change_text, warnings
from launchscope.report.reporter import RenderOptions, Reporter

# Characters that XML 1.0 does not allow.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_check(check: Check, options: RenderOptions) -> bytes:
    """A test suite named after the workload."""
    suite = ET.Element("testsuite", name=_clean(f"launchscope.check.{check.workload}"))
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("outcome", check.outcome),
        ("baseline", check.baseline),
        ("device", check.environment.device),
        ("torch", check.environment.torch),
        ("processes", str(check.processes)),
    ):
        if value is not None:
            ET.SubElement(properties, "property", name=name, value=_clean(value))
    changed = [change_text(change) for change in check.changes]
    for limit in check.limits:
        _limit(suite, check, limit, changed)
    if not check.limits:
        case = _case(suite, check.workload, "limits")
        _add(case, "skipped" if check.excused else "error", check.headline)
    _output(suite, "\n".join((check.headline, *warnings(check))))
    return _document(suite)


def render_profile(profile: Profile, options: RenderOptions) -> bytes:
    """A test suite with a case for every finding; errors fail."""
    suite = ET.Element("testsuite", name=_clean(f"launchscope.profile.{profile.target.name}"))
    for finding in profile.findings:
        _finding(suite, profile, finding)
    if profile.verdict is not None:
        _output(suite, profile.verdict.headline)
    return _document(suite)


def _limit(suite: ET.Element, check: Check, limit: LimitCheck, changed: Sequence[str]) -> None:
    case = _case(suite, check.workload, limit.metric)
    if check.excused and limit.outcome in ("failed", "not_compared"):
        _add(case, "skipped", limit.reason)
    elif limit.outcome == "failed":
        details = [f"the step begins at {check.source}"] if check.source else []
        details += ["what changed, per step:", *changed] if changed else []
        _add(case, "failure", limit.reason, "\n".join(details))
    elif limit.outcome == "not_compared":
        _add(case, "error" if check.outcome == "not_compared" else "skipped", limit.reason)
    else:
        _output(case, f"{limit.outcome}: {limit.reason}")


def _finding(suite: ET.Element, profile: Profile, finding: Finding) -> None:
    case = _case(suite, profile.target.name, f"{finding.code} {finding.title}")
    advice = f"{finding.where}: {finding.advice}" if finding.where else finding.advice
    if finding.severity == "error":
        _add(case, "failure", finding.title, advice)
    else:
        _output(case, f"{finding.severity}: {finding.title}\n{advice}")


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=_clean(f"launchscope.{group}"), name=_clean(name)
    )


def _add(case: ET.Element, kind: str, message: str, text: str = "") -> None:
    attributes = {"message": _clean(message)}
    if kind != "skipped":
        attributes["type"] = "launchscope"
    ET.SubElement(case, kind, attributes).text = _clean(text) or None


def _output(element: ET.Element, text: str) -> None:
    ET.SubElement(element, "system-out").text = _clean(text)


def _document(suite: ET.Element) -> bytes:
    counts = {"tests": len(suite.findall("testcase"))}
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[name] = len(suite.findall(f"testcase/{kind}"))
    for name, count in counts.items():
        suite.set(name, str(count))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root, " ")
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)


REPORTER = Reporter("junit", (".xml",), {Check: render_check, Profile: render_profile})
