"""The report as Markdown, for pull requests, issues and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from launchscope.report.document import (
    Bars,
    Block,
    Cell,
    Commands,
    Document,
    Entries,
    Entry,
    Items,
    Paragraph,
    Plot,
    Table,
    spans,
)
from launchscope.report.documents import DOCUMENTS, document_of
from launchscope.report.plot import text_plot
from launchscope.report.reporter import RenderOptions, Reporter

_TOP = 30
_PLOT_WIDTH = 76
_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


def render(value: object, options: RenderOptions) -> str:
    """GitHub-flavored Markdown, every paragraph on one line."""
    document = document_of(value, options.top or _TOP, options.next_commands)
    return "\n\n".join(_parts(document)) + "\n"


def _parts(document: Document) -> Iterator[str]:
    yield f"# {document.badge}: {code(document.title)}"
    yield f"**{escape(document.headline)}**"
    if document.basis:
        yield escape(document.basis)
    if document.context:
        yield "\n".join(f"- {escape(line)}" for line in document.context)
    for section in document.sections:
        yield f"## {escape(section.heading)}"
        yield from map(_block, section.blocks)


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return prose(text)
        case Items(texts, numbered):
            return "\n".join(
                f"{f'{i}.' if numbered else '-'} {prose(text)}" for i, text in enumerate(texts, 1)
            )
        case Entries(entries):
            return "\n".join(map(_entry, entries))
        case Table():
            return _table(block)
        case Bars(headings, bars):
            rows = [(escape(bar.label), escape(bar.figure), bar.share) for bar in bars]
            return table((*headings, "share"), ("left", "right", "right"), rows)
        case Plot():
            lines = ("".join(sign.sign for sign in line).rstrip()
                     for line in text_plot(block, _PLOT_WIDTH))  # fmt: skip
            return "```text\n" + "\n".join(lines) + "\n```"
        case Commands(lines):
            return "```sh\n" + "\n".join(lines) + "\n```"


def _entry(entry: Entry) -> str:
    where = f"{code(entry.where)}: " if entry.where else ""
    advice = f" {prose(entry.advice)}" if entry.advice else ""
    return f"- {entry.code} {where}{prose(entry.title.rstrip('.'))}.{advice}"


def _table(block: Table) -> str:
    columns = block.columns

    def cells(row: tuple[Cell, ...]) -> list[str]:
        return [
            code(cell.text) if column.code and cell.text else escape(cell.text)
            for cell, column in zip(row, columns)
        ]

    rows = [cells(row) for row in block.rows]
    if block.rows_left:
        rows.append([*[""] * (len(columns) - 1), f"and {block.rows_left} more"])
    return table([c.heading for c in columns], [c.align for c in columns], rows)


def table(heading: Sequence[str], aligned: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    marks = ["---:" if side == "right" else "---" for side in aligned]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, marks, *rows))


def prose(text: str) -> str:
    """A sentence: what is between backticks stays code, everything else is plain text."""
    return "".join(code(part) if is_code else escape(part) for part, is_code in spans(text))


def escape(text: str) -> str:
    """Signs that would become formatting, or end a table cell; on one line."""
    text = _LINE_BREAKS.sub(" ", text)
    for sign in "\\`*_<>|~":
        text = text.replace(sign, f"\\{sign}")
    return text


def code(text: str) -> str:
    """As code; a pipe would end a table cell even in there."""
    text = _LINE_BREAKS.sub(" ", text)
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


REPORTER = Reporter("markdown", (".md",), dict.fromkeys(DOCUMENTS, render))
