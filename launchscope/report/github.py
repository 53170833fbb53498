"""Annotations for GitHub Actions: workflow commands that name a line."""

from __future__ import annotations

from launchscope.model import Change, Check, SourceLine
from launchscope.report.documents.check import change_text, is_undecided
from launchscope.report.reporter import RenderOptions, Reporter
from launchscope.report.source_location import in_repository

# GitHub shows ten annotations of each level per step; the report has the rest.
_MOST = 9


def render(check: Check, options: RenderOptions) -> str:
    """An `::error` for each failed limit and each change that may cause it, else `::warning`."""
    lines = []
    appeared = [change for change in check.changes if change.appeared and change.where]
    step = in_repository(check.source, options.folder)
    severe = "error" if not check.excused else "notice" if check.written else "warning"
    for limit in check.limits:
        if limit.outcome == "failed":
            lines.append(_command(severe, f"launchscope: {limit.metric}", limit.reason, step))
        elif is_undecided(check, limit):
            lines.append(_command("warning", f"launchscope: {limit.metric}", limit.reason, step))
    if check.outcome == "not_compared":
        lines.append(_command(severe, "launchscope: nothing was compared", check.headline, None))
    if check.outcome in ("failed", "inconclusive"):
        level = severe if check.outcome == "failed" else "warning"
        lines += [_change(level, change, options.folder) for change in appeared[:_MOST]]
    lines += [_command("warning", "launchscope", warning, None) for warning in check.warnings]
    if check.stale:
        gained = ", ".join(limit.metric for limit in check.limits if limit.better)
        stale = f"{gained}: better than the baseline, which is stale"
        lines.append(_command("notice", "launchscope", stale, None))
    return "".join(f"{line}\n" for line in lines)


def _change(level: str, change: Change, folder: str) -> str:
    return _command(level, f"launchscope: new {change.kind}", change_text(change),
                    in_repository(change.where[0], folder))  # fmt: skip


def _command(level: str, title: str, message: str, line: SourceLine | None) -> str:
    properties = [] if line is None else [f"file={_property(line.file)}", f"line={line.line}"]
    properties.append(f"title={_property(title)}")
    return f"::{level} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


REPORTER = Reporter("github", (), {Check: render})
