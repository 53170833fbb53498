"""Where the new lines go, and how long they may be."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from launchscope.adopt.source import Source, last_line

DECORATOR = "graphed"
IMPORT = f"from launchscope import {DECORATOR}"
_WIDTH = 100


def wrapped(head: str, parts: Sequence[str], tail: str, indent: str, unit: str) -> list[str]:
    line = head + ", ".join(parts) + tail
    if len(indent.expandtabs(4)) + len(line) <= _WIDTH or not parts:
        return [line]
    return [head, *(f"{unit}{part}," for part in parts), tail]


def import_line(source: Source) -> int:
    """How many lines are in front of the import: a docstring and the first imports of the file."""
    body = source.tree.body
    imports = [isinstance(node, ast.Import | ast.ImportFrom) for node in body]
    at = imports.index(True) if any(imports) else int(_is_text(body[0]))
    while at < len(body) and imports[at]:
        at += 1
    return last_line(body[at - 1]) if at else _above(source)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _above(source: Source) -> int:
    """The comments at the top."""
    lines = 0
    while lines < len(source.lines) and source.lines[lines].startswith("#"):
        lines += 1
    return lines


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
