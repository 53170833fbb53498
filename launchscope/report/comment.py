"""A comment for a pull request, in GitHub-flavored Markdown: the answer, what changed, and the rest
folded up. Its first line never changes, so that a later run can find the comment and replace it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from launchscope.model import CheckResult, Comparison, Difference
from launchscope.report import RenderOptions, Reporter
from launchscope.report.document import Document, Plot
from launchscope.report.documents import DOCUMENTS
from launchscope.report.markdown import begun, code, escape, section_parts

MARKER = "<!-- launchscope -->"
_MOST = 65_536  # characters that GitHub takes
_TOP = 10  # rows
_TOP_OF_DETAILS = (30, 10, 3)
_LEVEL = 4  # of headings


def render(value: Any, options: RenderOptions) -> str:
    """At most as long as GitHub allows: with fewer rows, or without details, if need be."""
    document: Document = DOCUMENTS[type(value)](value, _TOP)
    short: Document = DOCUMENTS[type(value)](_SHORTENED[type(value)](value), _TOP)
    shown = [
        section
        for section in short.sections
        if not any(isinstance(block, Plot) for block in section.blocks)
    ]
    head = [
        MARKER,
        f"### {document.badge}: {code(document.title)}",
        f"**{escape(document.headline.strip())}**",
        *(part for section in shown for part in section_parts(section, _LEVEL)),
    ]
    for top in _TOP_OF_DETAILS:
        full: Document = DOCUMENTS[type(value)](value, top)
        rest = [section for section in full.sections if section not in shown]
        context = [begun(escape(line)) for line in (document.basis, *document.context) if line]
        details = [
            "<details><summary>Details</summary>",
            "\n".join(f"- {line}" for line in context),
            *(part for section in rest for part in section_parts(section, _LEVEL)),
            "</details>",
        ]
        text = "\n\n".join((*head, *filter(None, details))) + "\n"
        if len(text) <= _MOST:
            return text
    return _cut("\n\n".join(head))


def _cut(text: str) -> str:
    """As many whole lines as fit."""
    left = "\n\nThe rest does not fit into a comment.\n"
    room, kept = _MOST - len(left), []
    for line in text.split("\n"):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept) + left


def _check(check: CheckResult) -> CheckResult:
    """Without limits that passed at the value of the baseline, and without times."""
    limits = tuple(
        limit
        for limit in check.limits
        if limit.outcome != "passed" or limit.value != limit.baseline
    )
    return replace(check, limits=limits, timings=())


_SHORTENED: dict[type, Callable[[Any], Any]] = {
    CheckResult: _check,
    Comparison: lambda comparison: comparison,
    Difference: lambda difference: replace(difference, kernels=(), notes=()),
}
REPORTER = Reporter("comment", (".comment.md",), dict.fromkeys(_SHORTENED, render))
