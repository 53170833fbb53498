"""The report as Markdown, for pull requests, issues and job summaries."""

from __future__ import annotations

from launchscope.model import Check, Comparison, Difference, Finding, Profile, Ranks
from launchscope.report.check.markdown import render as render_check
from launchscope.report.comparison.markdown import render as render_comparison
from launchscope.report.content import Content, content_of
from launchscope.report.reporter import Reporter
from launchscope.report.table_report import markdown as render_sheet
from launchscope.report.text.markdown_syntax import LEFT, RIGHT, code, escape, table
from launchscope.wording import place


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
        f"# {content.badge}: {code(content.title)}",
        f"**{escape(content.headline)}**",
    ]
    if content.basis:
        sections.append(escape(content.basis))
    sections.append("\n".join(f"- {escape(line)}" for line in content.context))
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
        sections.append(table(("", "time", "share"), (LEFT, RIGHT, RIGHT), rows))
    if content.costs:
        sections += ["## What it costs", table(("", ""), (LEFT, RIGHT), content.costs)]
    if content.changes:
        sections += ["## What to change", "\n".join(map(_finding, content.changes))]
    if content.instructions:
        steps = (f"{i}. {escape(step)}" for i, step in enumerate(content.instructions, 1))
        sections += ["## How", "\n".join(steps)]
    if content.kernels:
        sections += [f"## {content.kernel_heading}", _kernels(content)]
    if content.notes:
        sections += ["## Notes", "\n".join(f"- {escape(note)}" for note in content.notes)]
    if content.next:
        sections += ["## Next", "```sh\n" + "\n".join(content.next) + "\n```"]
    return sections


def _eager_against_replay(content: Content) -> str:
    if not any(row.replay or row.change for row in content.rows):
        rows = [(row.label, row.eager) for row in content.rows]
        return table(("", ""), (LEFT, RIGHT), rows)
    return table(
        ("", "eager", content.replay_heading, ""),
        (LEFT, RIGHT, RIGHT, RIGHT),
        [(row.label, row.eager, row.replay, row.change) for row in content.rows],
    )


def _kernels(content: Content) -> str:
    rows = [
        (k.count, k.total, k.share, code(k.where) if k.where else "", code(k.name))
        for k in content.kernels
    ]
    if content.kernels_left:
        rows.append(("", "", "", "", f"and {content.kernels_left} more"))
    return table(
        ("count", "time", "share", "line", "kernel"),
        (RIGHT, RIGHT, RIGHT, LEFT, LEFT),
        rows,
        escaped=True,
    )


def _finding(finding: Finding) -> str:
    where = f"{code(place(finding.where))}: " if finding.where else ""
    advice = f" {escape(finding.advice)}" if finding.advice else ""
    return f"- {finding.code} {where}{escape(finding.title.rstrip('.'))}.{advice}"


REPORTER = Reporter(
    "markdown",
    (".md",),
    {
        Profile: render,
        Check: render_check,
        Comparison: render_comparison,
        Difference: render_sheet,
        Ranks: render_sheet,
    },
)
