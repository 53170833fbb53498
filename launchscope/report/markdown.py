"""The report as Markdown, for pull requests, issues and job summaries."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Finding, Profile
from launchscope.report.content import Content, content_of
from launchscope.report.reporter import Reporter

_RIGHT = "---:"
_LEFT = "---"


def render(profile: Profile, /, **options: object) -> str:
    """GitHub-flavoured Markdown, every paragraph on one line. Option: `top` kernels (8)."""
    top = options.get("top")
    commands = options.get("next_commands")
    content = content_of(
        profile,
        top=top if isinstance(top, int) else 8,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return "\n\n".join(_sections(content)) + "\n"


def _sections(content: Content) -> list[str]:
    sections = [
        f"# {content.badge}: {_code(content.title)}",
        f"**{_escape(content.headline)}**",
    ]
    if content.basis:
        sections.append(_escape(content.basis))
    sections.append("\n".join(f"- {_escape(line)}" for line in content.context))
    if content.why:
        sections += ["## Why", "\n".join(map(_finding, content.why))]
    if content.rows:
        sections.append(_eager_against_replay(content))
    if content.parts:
        rows = [
            (part.label, part.duration, f"{part.share_pct:.0f} %" if part.measured else "")
            for part in content.parts
        ]
        sections.append(f"## Where the iteration goes ({content.iteration})")
        sections.append(_table(("", "time", "share"), (_LEFT, _RIGHT, _RIGHT), rows))
    if content.costs:
        sections += ["## What it costs", _table(("", ""), (_LEFT, _RIGHT), content.costs)]
    if content.changes:
        sections += ["## What to change", "\n".join(map(_finding, content.changes))]
    if content.how:
        steps, _, code = content.how.partition("\n\n")
        sections += ["## How", "\n".join(map(_escape, steps.splitlines()))]
        if code:
            sections.append(f"```python\n{code}\n```")
    if content.kernels:
        sections += [f"## {content.kernel_heading}", _kernels(content)]
    if content.notes:
        sections += ["## Notes", "\n".join(f"- {_escape(note)}" for note in content.notes)]
    if content.next:
        sections += ["## Next", "```sh\n" + "\n".join(content.next) + "\n```"]
    return sections


def _eager_against_replay(content: Content) -> str:
    if not any(row.replay or row.change for row in content.rows):
        rows = [(row.label, row.eager) for row in content.rows]
        return _table(("", ""), (_LEFT, _RIGHT), rows)
    return _table(
        ("", "eager", content.replay_heading, ""),
        (_LEFT, _RIGHT, _RIGHT, _RIGHT),
        [(row.label, row.eager, row.replay, row.change) for row in content.rows],
    )


def _kernels(content: Content) -> str:
    rows = [
        (k.count, k.total, k.share, _code(k.where) if k.where else "", _code(k.name))
        for k in content.kernels
    ]
    if content.kernels_left:
        rows.append(("", "", "", "", f"and {content.kernels_left} more"))
    return _table(
        ("count", "time", "share", "line", "kernel"),
        (_RIGHT, _RIGHT, _RIGHT, _LEFT, _LEFT),
        rows,
        escape=False,
    )


def _finding(finding: Finding) -> str:
    where = f"{_code(finding.where)}: " if finding.where else ""
    advice = f" {_escape(finding.advice)}" if finding.advice else ""
    return f"- {finding.code} {where}{_escape(finding.title.rstrip('.'))}.{advice}"


def _table(
    heading: tuple[str, ...],
    alignment: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    escape: bool = True,
) -> str:
    cells = [tuple(map(_escape, row)) for row in rows] if escape else rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, alignment, *cells))


def _escape(text: str) -> str:
    """Signs that would become formatting, or end a table cell."""
    for sign in "\\`*_<>|":
        text = text.replace(sign, f"\\{sign}")
    return text


def _code(text: str) -> str:
    """As code; a pipe would end a table cell even in there."""
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


REPORTER = Reporter("markdown", (".md",), render)
