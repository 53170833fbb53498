"""Annotations for GitHub Actions: workflow commands that name a line."""

from __future__ import annotations

from launchscope.gate.metrics import label
from launchscope.model import CheckResult, SourceLine
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.check import change_text, warnings
from launchscope.visible import without_commands

# GitHub shows ten annotations of each level per step; the report has the rest.
_MOST = 9


def render(check: CheckResult, options: RenderOptions) -> str:
    """An `::error` for each failed limit and each change that may cause it, else `::warning`."""
    severe = "notice" if check.written else "error"
    step = options.in_repository(check.source)
    lines = [
        _command(severe, f"launchscope: {label(limit.metric)}", limit.reason, step)
        for limit in check.limits
        if limit.outcome == "failed"
    ]
    if check.outcome == "not_compared":
        lines.append(_command(severe, "launchscope: nothing was compared", check.headline, None))
    if check.outcome in ("failed", "inconclusive"):
        level = severe if check.outcome == "failed" else "warning"
        appeared = [change for change in check.changes if change.appeared and change.where]
        for change in appeared[:_MOST]:
            where = options.in_repository(change.where[0])
            title = f"launchscope: new {change.kind}"
            lines.append(_command(level, title, change_text(change), where))
    lines += [_command("warning", "launchscope", warning, None) for warning in warnings(check)]
    return "".join(f"{line}\n" for line in lines)


def _command(level: str, title: str, message: str, line: SourceLine | None) -> str:
    properties = [] if line is None else [f"file={_property(line.file)}", f"line={line.line}"]
    properties.append(f"title={_property(title)}")
    return f"::{level} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    return without_commands(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


REPORTER = Reporter("github", (), {CheckResult: render})
