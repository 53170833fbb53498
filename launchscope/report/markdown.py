"""The report as Markdown, for pull requests, issues and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        case Bars():
            return _table(block.table(lambda bar: ""))
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

    marks = ["---:" if column.align == "right" else "---" for column in columns]
    rows = [[column.heading for column in columns], marks, *map(cells, block.rows)]
    if block.rows_left:
        rows.append([*[""] * (len(columns) - 1), f"and {block.rows_left} more"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def prose(text: str) -> str:
    """A sentence: text between backticks stays code, the rest is escaped."""
    return "".join(code(part) if is_code else escape(part) for part, is_code in spans(text))


def escape(text: str) -> str:
    """Plain text on one line: signs that would become formatting or end a cell are escaped."""
    text = _LINE_BREAKS.sub(" ", text)
    for sign in "\\`*_<>|~":
        text = text.replace(sign, f"\\{sign}")
    return text


def code(text: str) -> str:
    """Code; a pipe would end a table cell even inside code."""
    text = _LINE_BREAKS.sub(" ", text)
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


REPORTER = Reporter("markdown", (".md",), dict.fromkeys(DOCUMENTS, render))
