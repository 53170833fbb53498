"""A Check as Markdown, for job summaries and comments on a pull request."""

from __future__ import annotations

from launchscope.model import Check
from launchscope.report.check.content import CheckContent, check_content
from launchscope.report.text.markdown_syntax import LEFT, RIGHT, code, escape, table


def render(check: Check, /, **options: object) -> str:
    """GitHub-flavoured Markdown. `top` bounds the changes (30)."""
    top, commands = options.get("top"), options.get("next_commands")
    content = check_content(
        check,
        top=top if isinstance(top, int) else 30,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return "\n\n".join(_sections(content)) + "\n"


def _sections(content: CheckContent) -> list[str]:
    sections = [
        f"# {content.badge}: {code(content.title)}",
        f"**{escape(content.headline)}**",
        escape(content.basis),
        "\n".join(f"- {escape(text)}" for text in content.context),
    ]
    if content.limits:
        rows = [
            (code(r.metric), code(r.limit), escape(r.baseline), escape(r.now), r.outcome)
            for r in content.limits
        ]
        sections += [
            "## Limits",
            table(
                ("metric", "limit", "baseline", "now", ""),
                (LEFT, RIGHT, RIGHT, RIGHT, LEFT),
                rows,
                escaped=True,
            ),
        ]
    if len(content.failures) > 1:
        sections += ["\n".join(f"- {escape(failure)}" for failure in content.failures)]
    if content.changes:
        sections += ["## What changed, per step", _changes(content)]
    elif content.compared:
        sections += ["## What changed", "Nothing: the same operations, blockers and kernels."]
    if content.warnings:
        sections += ["## To know", "\n".join(f"- {escape(w)}" for w in content.warnings)]
    if content.next:
        sections += ["## Next", "```sh\n" + "\n".join(content.next) + "\n```"]
    return sections


def _changes(content: CheckContent) -> str:
    rows = [
        (r.difference, r.before, r.after, r.kind, code(r.name), code(r.where) if r.where else "")
        for r in content.changes
    ]
    if content.changes_left:
        rows.append(("", "", "", "", f"and {content.changes_left} more", ""))
    return table(
        ("", "was", "is", "kind", "name", "line"),
        (RIGHT, RIGHT, RIGHT, LEFT, LEFT, LEFT),
        rows,
        escaped=True,
    )
