"""JUnit XML: one test case per limit of a CheckResult.

The names are the same from run to run, because CI services follow a test by its name. An
inconclusive limit passes, with its reason as output. Source lines are part of the texts: strict
readers accept no attributes for them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from launchscope.model import CheckResult, LimitCheck
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.check import change_text, warnings


def render(check: CheckResult, options: RenderOptions) -> str:
    """A test suite named after the workload."""
    suite = ET.Element("testsuite", name=f"launchscope.check.{check.workload}")
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("outcome", check.outcome),
        ("baseline", check.baseline),
        ("device", check.environment.device),
        ("torch", check.environment.torch),
        ("processes", str(check.processes)),
    ):
        if value is not None:
            ET.SubElement(properties, "property", name=name, value=value)
    measurement = _case(suite, check.workload, "measurement")
    if not check.processes:
        _add(measurement, "error", check.headline)
    changed = [change_text(change) for change in check.changes]
    for limit in check.limits:
        _limit(_case(suite, check.workload, limit.metric), check, limit, changed)
    if check.processes and not check.limits:
        case = _case(suite, check.workload, "limits")
        _add(case, "skipped" if check.written else "error", check.headline)
    return _document(suite, "\n".join((check.headline, *warnings(check))))


def _limit(case: ET.Element, check: CheckResult, limit: LimitCheck, changed: list[str]) -> None:
    if check.written and limit.outcome in ("failed", "not_compared"):
        _add(case, "skipped", limit.reason)
    elif limit.outcome == "failed":
        details = [f"the step begins at {check.source}"] if check.source else []
        details += ["what changed, per step:", *changed] if changed else []
        _add(case, "failure", limit.reason, "\n".join(details))
    elif limit.outcome == "not_compared":
        _add(case, "error" if check.outcome == "not_compared" else "skipped", limit.reason)
    else:
        _output(case, f"{limit.outcome}: {limit.reason}")


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"launchscope.{group}", name=name)


def _add(case: ET.Element, kind: str, message: str, text: str = "") -> None:
    details = {"message": message} | ({} if kind == "skipped" else {"type": "launchscope"})
    ET.SubElement(case, kind, details).text = text or None


def _output(element: ET.Element, text: str) -> None:
    ET.SubElement(element, "system-out").text = text


def _document(suite: ET.Element, output: str) -> str:
    _output(suite, output)
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root, " ")
    # GitLab and Jenkins attach the file that `[[ATTACHMENT|path]]` names.
    text = ET.tostring(root, encoding="unicode").replace("[[ATTACHMENT", "[ [ATTACHMENT")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n"


REPORTER = Reporter("junit", (".xml",), {CheckResult: render})
