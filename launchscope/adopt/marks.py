"""Copies of the script that say where an iteration of the loop around the step begins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from launchscope.adopt.patch import Patch
from launchscope.adopt.record import ITERATION
from launchscope.adopt.source import is_docstring
from launchscope.python_source import parsed

_AROUND = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Marked:
    """A file whose loop, function or branch around the step begins with the call. `inserted` is the
    line of the call, if that is a new one, or 0. `lines`: where statements of an iteration begin,
    each with its line in the person's file."""

    content: bytes
    inserted: int
    lines: Mapping[int, int] = field(default_factory=dict)


def marked_at(before: bytes, line: int, content: bytes = b"") -> Marked | None:
    """The person's file with its step on this line, or `content`, which has changes beside the
    step. None if neither a loop nor a function is around the step."""
    number = _around(parsed(before), lambda node: node.lineno == line)
    if number is None:
        return None
    marked = _marked(content or before, number)
    statements = (_statements(_bodies(parsed(c))[number]) for c in (marked.content, before))
    ours, persons = ([node.lineno for node in nodes] for nodes in statements)
    ours.pop(0)  # the call
    return replace(marked, lines=dict(zip(ours, persons)))


def marked_patched(patch: Patch) -> Marked | None:
    number = _around(parsed(patch.after), lambda node: _calls(node, patch.function))
    return None if number is None else _marked(patch.after, number)


def _marked(content: bytes, number: int) -> Marked:
    body = _bodies(parsed(content))[number]
    first = body[1] if is_docstring(body[0]) and len(body) > 1 else body[0]
    at = min(node.lineno for node in (first, *getattr(first, "decorator_list", ()))) - 1
    lines, call = content.splitlines(keepends=True), ITERATION.encode() + b"()"
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t\f"))]
    if len(indent) >= first.col_offset:
        end = b"\r\n" if lines[at].endswith(b"\r\n") else b"\n"
        lines.insert(at, indent + call + end)
        return Marked(b"".join(lines), at + 1)
    # `for x in y: step(x)`
    before, behind = lines[at][: first.col_offset], lines[at][first.col_offset :]
    lines[at] = before + call + b"; " + behind
    return Marked(b"".join(lines), 0)


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """Of all loops, functions and branches, in an order that changes beside the step keep."""
    found = (n for n in ast.walk(tree) if isinstance(n, _AROUND))
    return [n.body for n in found if n.body[0].lineno > n.lineno or not isinstance(n, ast.If)]


def _around(tree: ast.Module, is_step: Callable[[ast.stmt], bool]) -> int | None:
    """Which is the innermost one around the first statement of the step."""
    found = [
        (body[0].lineno, body[0].col_offset, number)
        for number, body in enumerate(_bodies(tree))
        if any(map(is_step, _statements(body)))
    ]
    return max(found)[2] if found else None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All in a body, in inner blocks too, that the interpreter can stop at, in their order."""
    nodes = (node for statement in body for node in ast.walk(statement))
    shown = (
        node
        for node in nodes
        if isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Global | ast.Nonlocal) or is_docstring(node))
    )
    return iter(sorted(shown, key=lambda node: (node.lineno, node.col_offset)))


def _calls(statement: ast.stmt, name: str) -> bool:
    """Whether a statement, not one inside of it, calls a function of this name."""
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            return True
        left += [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt)]
    return False
