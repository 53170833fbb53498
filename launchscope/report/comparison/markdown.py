"""The comparison as Markdown, with its plot as text."""

from __future__ import annotations

from launchscope.model import Comparison
from launchscope.report.comparison.buckets import BucketSection
from launchscope.report.comparison.content import ComparisonContent, content_of
from launchscope.report.comparison.ladder import LadderSection
from launchscope.report.comparison.plot import drawn, text_of
from launchscope.report.text.markdown_syntax import LEFT, RIGHT, code, escape, table

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
    sections = [f"# Comparison: {code(content.title)}"]
    if content.headline:
        sections.append(f"**{escape(content.headline)}**")
    sections.append("\n".join(f"- {escape(line)}" for line in content.context))
    if content.table is not None:
        points = content.table
        sections.append(
            table(
                [column.heading for column in points.columns],
                [RIGHT if column.right else LEFT for column in points.columns],
                points.rows,
            )
        )
        sections += [escape(line[:1].upper() + line[1:]) + "." for line in points.legend]
    if content.failures:
        sections.append("\n".join(f"- {escape(line)}" for line in content.failures))
    sections += [escape(line) for line in content.crossovers]
    for plot in content.plots:
        text = text_of(drawn(plot.series, _PLOT_WIDTH, mark=plot.mark))
        sections += [f"## {escape(plot.title)}", f"```text\n{text}\n```"]
    for ladder in content.ladders:
        sections += _ladder(ladder)
    for buckets in content.buckets:
        sections += _buckets(buckets)
    if content.notes:
        sections += ["## Notes", "\n".join(f"- {escape(note)}" for note in content.notes)]
    if content.next:
        sections += ["## Next", "```sh\n" + "\n".join(content.next) + "\n```"]
    return sections


def _ladder(section: LadderSection) -> list[str]:
    alignment = [LEFT if section.is_left(heading) else RIGHT for heading in section.headings]
    said = [f"## {escape(section.title)}"]
    if section.headline:
        said.append(f"**{escape(section.headline)}**")
    said.append(table(section.headings, alignment, section.rows))
    if section.details:
        said.append("\n".join(f"- {escape(line)}" for line in section.details))
    return said


def _buckets(section: BucketSection) -> list[str]:
    said = [f"## {escape(section.title)}"]
    if section.headline:
        said.append(f"**{escape(section.headline)}**")
    if section.histogram:
        rows = [(bar.label, str(bar.steps), f"{bar.share_pct:.0f} %") for bar in section.histogram]
        said.append(table(("size", "steps", "share"), (LEFT, RIGHT, RIGHT), rows))
    if section.rows:
        said.append(table(section.headings, [RIGHT] * len(section.headings), section.rows))
    if section.facts:
        said.append(table(("", ""), (LEFT, RIGHT), section.facts))
    if section.notes:
        said.append("\n".join(f"- {escape(note)}" for note in section.notes))
    return said
