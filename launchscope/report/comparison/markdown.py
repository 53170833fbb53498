"""The comparison as Markdown, with its plot as text."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Comparison
from launchscope.report.comparison.buckets import BucketSection
from launchscope.report.comparison.content import ComparisonContent, content_of
from launchscope.report.comparison.ladder import LadderSection
from launchscope.report.comparison.plot import drawn, text_of

_RIGHT, _LEFT = "---:", "---"
_PLOT_WIDTH = 76


def render(comparison: Comparison, /, **options: object) -> str:
    """GitHub-flavoured Markdown, every paragraph on one line."""
    commands = options.get("next_commands")
    content = content_of(
        comparison,
        next_commands=tuple(map(str, commands)) if isinstance(commands, tuple | list) else (),
    )
    return "\n\n".join(_sections(content)) + "\n"


def _sections(content: ComparisonContent) -> list[str]:
    sections = [f"# Comparison: `{content.title.replace('`', chr(39))}`"]
    if content.headline:
        sections.append(f"**{_escape(content.headline)}**")
    sections.append("\n".join(f"- {_escape(line)}" for line in content.context))
    if content.table is not None:
        table = content.table
        sections.append(
            _table(
                [column.heading for column in table.columns],
                [_RIGHT if column.right else _LEFT for column in table.columns],
                table.rows,
            )
        )
        sections += [_escape(line[:1].upper() + line[1:]) + "." for line in table.legend]
    if content.failures:
        sections.append("\n".join(f"- {_escape(line)}" for line in content.failures))
    sections += [_escape(line) for line in content.crossovers]
    for plot in content.plots:
        text = text_of(drawn(plot.series, _PLOT_WIDTH, mark=plot.mark))
        sections += [f"## {_escape(plot.title)}", f"```text\n{text}\n```"]
    for ladder in content.ladders:
        sections += _ladder(ladder)
    for buckets in content.buckets:
        sections += _buckets(buckets)
    if content.notes:
        sections += ["## Notes", "\n".join(f"- {_escape(note)}" for note in content.notes)]
    if content.next:
        sections += ["## Next", "```sh\n" + "\n".join(content.next) + "\n```"]
    return sections


def _ladder(section: LadderSection) -> list[str]:
    alignment = [_LEFT if section.is_left(heading) else _RIGHT for heading in section.headings]
    said = [f"## {_escape(section.title)}"]
    if section.headline:
        said.append(f"**{_escape(section.headline)}**")
    said.append(_table(section.headings, alignment, section.rows))
    if section.details:
        said.append("\n".join(f"- {_escape(line)}" for line in section.details))
    return said


def _buckets(section: BucketSection) -> list[str]:
    said = [f"## {_escape(section.title)}"]
    if section.headline:
        said.append(f"**{_escape(section.headline)}**")
    if section.histogram:
        rows = [(bar.label, str(bar.steps), f"{bar.share_pct:.0f} %") for bar in section.histogram]
        said.append(_table(("size", "steps", "share"), (_LEFT, _RIGHT, _RIGHT), rows))
    if section.rows:
        said.append(_table(section.headings, [_RIGHT] * len(section.headings), section.rows))
    if section.facts:
        said.append(_table(("", ""), (_LEFT, _RIGHT), section.facts))
    if section.notes:
        said.append("\n".join(f"- {_escape(note)}" for note in section.notes))
    return said


def _table(headings: Sequence[str], alignment: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, alignment, *([_escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Signs that would become formatting, or end a table cell."""
    for sign in "\\`*_<>|~":
        text = text.replace(sign, f"\\{sign}")
    return text
