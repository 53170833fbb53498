"""Copies of the script that say where an iteration of the loop around the step begins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launchscope.adopt.patch import Patch
from launchscope.adopt.record import ITERATION
from launchscope.python_source import parsed

_AROUND = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Marked:
    """A file with a call in line `at`; what was in that line, and all behind it, is one further
    down if the call has a line of its own (`own_line`). `statements`: the lines, without the call,
    in which statements of an iteration begin."""

    content: bytes
    at: int
    own_line: bool
    statements: tuple[int, ...]

    def shifted(self, line: int) -> int:
        """Where a line of the file without the call is."""
        return line + (self.own_line and line >= self.at)

    def unshifted(self, line: int) -> int:
        return line - (self.own_line and line > self.at)


def marked_original(patch: Patch) -> Marked | None:
    """None if neither a loop nor a function is around the step."""
    content = patch.reference or patch.before
    return _marked(content, lambda node: node.lineno == patch.first_line)


def marked_patched(patch: Patch) -> Marked | None:
    return _marked(patch.after, lambda node: _calls(node, patch.function))


def _marked(content: bytes, is_step: Callable[[ast.stmt], bool]) -> Marked | None:
    body = _around(parsed(content), is_step)
    if body is None:
        return None
    first = body[1] if _is_docstring(body[0]) and len(body) > 1 else body[0]
    at = min(node.lineno for node in (first, *getattr(first, "decorator_list", ())))
    lines = content.splitlines(keepends=True)
    text = lines[at - 1]
    column = len(text) - len(text.lstrip(b" \t\f"))
    own_line = column >= first.col_offset
    if own_line:
        end = b"\r\n" if text.endswith(b"\r\n") else b"\n"
        lines.insert(at - 1, text[:column] + ITERATION.encode() + b"()" + end)
    else:
        column = first.col_offset
        lines[at - 1] = text[:column] + ITERATION.encode() + b"(); " + text[column:]
    statements = {node.lineno for node in _statements(body)}
    return Marked(b"".join(lines), at, own_line, tuple(sorted(statements)))


def _around(tree: ast.Module, is_step: Callable[[ast.stmt], bool]) -> list[ast.stmt] | None:
    """The body of the innermost loop or function around the first statement of the step."""
    best: tuple[int, list[ast.stmt]] | None = None
    for node in ast.walk(tree):
        if not isinstance(node, _AROUND):
            continue
        steps = [s for s in _statements(node.body) if is_step(s)]
        if steps and (best is None or node.lineno > best[0]):
            best = node.lineno, node.body
    return None if best is None else best[1]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All in a body, in inner blocks too, that the interpreter can stop at."""
    for statement in body:
        for node in ast.walk(statement):
            silent = isinstance(node, ast.Global | ast.Nonlocal) or _is_docstring(node)
            if isinstance(node, ast.stmt) and not silent:
                yield node


def _calls(statement: ast.stmt, name: str) -> bool:
    """Whether a statement, not one inside of it, calls a function of this name."""
    inner = {id(node) for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt)
             for node in ast.walk(part)}  # fmt: skip
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and id(node) not in inner
        for node in ast.walk(statement)
    )


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
