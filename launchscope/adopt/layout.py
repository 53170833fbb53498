"""Where the new lines go, and how long they may be."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile

from launchscope.adopt.source import Source, is_docstring, last_line

DECORATOR = "graphed"
IMPORT = f"from launchscope import {DECORATOR}"
_WIDTH = 100


def wrapped(head: str, parts: Sequence[str], tail: str, indent: str, unit: str) -> list[str]:
    line = head + ", ".join(parts) + tail
    if len(indent.expandtabs(4)) + len(line) <= _WIDTH or not parts:
        return [line]
    return [head, *(f"{unit}{part}," for part in parts), tail]


def import_line(source: Source, above: int) -> int:
    """How many lines are in front of the import: those up to the last import of the file above a
    line, because torch must be imported earlier, or a docstring."""
    body = source.tree.body
    imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    ends = [last_line(n) for n in (*filter(is_docstring, body[:1]), *imports)]
    return max((end for end in ends if end < above), default=_above(source))


def _above(source: Source) -> int:
    """The comments at the top."""
    return len([*takewhile(lambda line: line.startswith("#"), source.lines)])


def spaced(definition: list[str], before: Sequence[str], indent: str, newline: str) -> list[str]:
    """With blank lines around it: two at the top level."""
    wanted = 1 if indent else 2
    text = "".join(before)
    there = 0
    for line in reversed(before):
        if line.strip():
            break
        there += 1
    opens = bool(indent) and text.rstrip().endswith(":")
    return [*[newline] * (0 if opens else wanted - there), *definition, *[newline] * wanted]
