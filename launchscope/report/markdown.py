"""The report as Markdown, for pull requests, issues and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from launchscope.report import RenderOptions, Reporter, document
from launchscope.report.documents import DOCUMENTS, document_of

_TOP = 30
_SIGNS = re.compile(r"[\\`*_<>|~\[\]#!$&]")
# What begins a list, is a rule or, in a comment, a command (`/close`) at the beginning of a block.
_BEGINNING = re.compile(r"^(\d*)([-+.)](?=\s|$)|-(?=[\s-]*$)|(?<!\d)/)")
# Where GitHub and GitLab look for links, mentions, issues, emoji and formulas in the text of the
# page, which has no backslashes any more. A space without a width after it prevents that. To them a
# word is one of ASCII letters.
_LIVE = re.compile(
    r"@|\$(?!\s)|[#!&%](?=[\w\"])|~(?=[^\W\d]|\")|\*(?=iteration:)|\[(?=\w+:)|/(?=/)|:(?=[\w+-]+:)"
    r"|(?<!(?a:[^\W_]))(?:(?:g[hl]|ghsa|cve)-(?=\w)|www(?=\.|$)|(?:mailto|xmpp):)",
    re.IGNORECASE,
)
_NO_WIDTH = "\u200b"
_TICKS = re.compile("`+")


def render(value: object, options: RenderOptions) -> str:
    """GitHub-flavored Markdown, every paragraph on one line."""
    parts = _parts(document_of(value, options.top or _TOP, options.next_commands))
    return "\n\n".join(parts) + "\n"


def _parts(report: document.Document) -> Iterator[str]:
    yield f"# {report.badge}: {code(report.title)}"
    if report.headline.strip():
        yield f"**{escape(report.headline.strip())}**"
    if report.basis:
        yield begun(escape(report.basis))
    if report.context:
        yield "\n".join(f"- {begun(escape(line))}" for line in report.context)
    for section in report.sections:
        yield from section_parts(section)


def section_parts(section: document.Section, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {escape(section.heading)}"
    yield from map(_block, section.blocks)


def _block(block: document.Block) -> str:
    match block:
        case document.Paragraph(text):
            return prose(text)
        case document.Items(texts, numbered):
            return "\n".join(
                f"{f'{i}.' if numbered else '-'} {prose(text)}" for i, text in enumerate(texts, 1)
            )
        case document.Entries(entries):
            return "\n".join(map(_entry, entries))
        case document.Table():
            return _table(block)
        case document.Bars():
            return _table(block.table(lambda bar: ""))
        case document.Commands(lines):
            return _fenced("sh", lines)
        case document.Diff():
            return _fenced("diff", block.shown)


def _entry(entry: document.Entry) -> str:
    where = f"{code(entry.where)}: " if entry.where else ""
    advice = f" {prose(entry.advice)}" if entry.advice else ""
    return f"- {begun(escape(entry.code))} {where}{prose(entry.title.rstrip('.'))}.{advice}"


def _table(block: document.Table) -> str:
    columns = block.columns

    def cells(row: tuple[document.Cell, ...]) -> list[str]:
        return [
            code(cell.text).replace("|", "\\|") if column.code else escape(cell.text)
            for cell, column in zip(row, columns)
        ]

    marks = ["---:" if column.align == "right" else "---" for column in columns]
    rows = [[escape(column.heading) for column in columns], marks, *map(cells, block.rows)]
    if block.rows_left:
        rows.append([*[""] * (len(columns) - 1), f"and {block.rows_left} more"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def prose(text: str) -> str:
    """A sentence at the beginning of a block: text between backticks stays code."""
    parts = document.spans(text)
    # Blank code is a space: without one, what is before and behind it could make a link.
    return begun("".join(code(part) or " " if is_code else escape(part) for part, is_code in parts))


def begun(text: str) -> str:
    """Markdown of a line that begins a block, and is not taken for a list, a rule or a command."""
    return _BEGINNING.sub(r"\1\\\2", text.strip())


def escape(text: str) -> str:
    """Plain text in a line: no sign in it formats, ends a cell, links or mentions."""
    text = _SIGNS.sub(r"\\\g<0>", _LIVE.sub(rf"\g<0>{_NO_WIDTH}", text))
    return text.replace(_NO_WIDTH, "&#8203;")


def code(text: str) -> str:
    """Code between more backticks than it has in a row."""
    if not text.strip():
        return ""
    ticks = _ticks(text, 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _fenced(language: str, lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return f"{_ticks(text, 3)}{language}\n{text}\n{_ticks(text, 3)}"


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, *(len(run) + 1 for run in _TICKS.findall(text)), 0)


REPORTER = Reporter("markdown", (".md",), dict.fromkeys(DOCUMENTS, render))
