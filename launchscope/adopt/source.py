"""A Python file in lines: its blocks of statements, and the edits of its text."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchscope.adopt.names import FUNCTIONS, blocks_of
from launchscope.adopt.observation import Cause
from launchscope.adopt.patch import Place, RefusalReason, RefusedError
from launchscope.model import StepCallKind
from launchscope.python_source import parsed

_PSEUDO = ("<lambda>", "<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
HOLDERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)


@dataclass(frozen=True)
class Edit:
    """`new` in place of a span of the text."""

    begin: int
    end: int
    new: str


@dataclass(eq=False)
class Block:
    """A list of statements. `owner` None: the module."""

    owner: ast.stmt | None
    statements: Sequence[ast.stmt]
    holders: tuple[ast.stmt, ...] = field(default=())  # around it, innermost first


class Source:
    """Raises RefusedError where it is no Python."""

    def __init__(self, file: Path, text: str, encoding: str):
        self.file, self.text, self.encoding = file, text, encoding
        self.lines: list[str] = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)
        self.newline = next(iter(re.findall(r"\r\n|\r|\n", text)), "\n")
        try:
            self.tree = parsed(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise RefusedError("unreadable", getattr(error, "lineno", None)) from None
        self._starts = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]
        self.block_of: dict[ast.stmt, Block] = {}
        self._add(Block(None, self.tree.body))
        nodes = list(ast.walk(self.tree))
        self.names = {node.id for node in nodes if isinstance(node, ast.Name)}
        self.names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        self.names |= {node.name for node in nodes if isinstance(node, HOLDERS)}
        for node in nodes:
            if isinstance(node, ast.alias):
                self.names.add((node.asname or node.name).partition(".")[0])
        self._inside_text = {
            line
            for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)
            if isinstance(node, ast.JoinedStr) or isinstance(node.value, str | bytes)
            for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)
        }  # fmt: skip

    @classmethod
    def load(cls, file: Path, data: bytes) -> Source:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(encoding)
            same = text.encode(encoding) == data
        except (SyntaxError, ValueError, LookupError):
            raise RefusedError("unreadable") from None
        if not same:
            raise RefusedError("unreadable")
        return cls(file, text, encoding)

    def encoded(self, text: str) -> bytes:
        return text.encode(self.encoding)

    def fresh(self, name: str) -> str:
        """The name, or one like it, that the file does not use; it is used from now on."""
        found, number = name, 1
        while found in self.names:
            number += 1
            found = f"{name}_{number}"
        self.names.add(found)
        return found

    # ------------------------------------------------------------------------------ the text

    def offset(self, line: int, column: int) -> int:
        """Of a position that `ast` gives, whose columns count bytes of UTF-8."""
        begin = self._starts[line - 1]
        part = self.text[begin : begin + column]
        return begin + (column if part.isascii() else len(part.encode()[:column].decode()))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self.offset(node.end_lineno, node.end_col_offset)
        return self.offset(node.lineno, node.col_offset), end

    def code(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def applied(self, edits: Iterable[Edit]) -> str:
        """The text after edits that do not overlap."""
        parts, position = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.begin, edit.end)):
            parts += [self.text[position : edit.begin], edit.new]
            position = edit.end
        return "".join([*parts, self.text[position:]])

    def indent(self, line: int) -> str:
        text: str = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    @property
    def unit(self) -> str:
        """One more level of indentation, as the file has it."""
        for node, block in self.block_of.items():
            outer = "" if block.owner is None else self.indent(block.owner.lineno)
            inner = self.indent(node.lineno)
            if block.owner is not None and node.lineno > block.owner.lineno and inner != outer:
                return inner[len(outer) :]
        return "    "

    def moved(self, first: int, last: int, indent: str) -> list[str]:
        """Lines, inclusive, at another indentation. What is inside of texts stays."""
        old = self.indent(next((n for n in range(first, last + 1) if self._says(n)), first))
        return [
            indent + line[len(old) :] if line.startswith(old) and n not in self._inside_text
            and line.strip() else line
            for n, line in zip(range(first, last + 1), self.lines[first - 1 : last])
        ]  # fmt: skip

    def _says(self, line: int) -> bool:
        text = self.lines[line - 1].strip()
        return bool(text) and not text.startswith("#")

    # ------------------------------------------------------------------------ the statements

    def _add(self, block: Block) -> None:
        for node in block.statements:
            self.block_of[node] = block
            for inner in blocks_of(node):
                self._add(Block(node, inner, (node, *block.holders)))

    def around(self, node: ast.stmt) -> tuple[ast.stmt, ...]:
        """The compound statements that hold it, innermost first."""
        return self.block_of[node].holders

    def function(self, node: ast.stmt) -> ast.stmt | None:
        """The function that it runs in; None: the module."""
        return next((s for s in self.around(node) if isinstance(s, FUNCTIONS)), None)

    def loops(self, node: ast.stmt) -> list[ast.stmt]:
        """Around it within its function, innermost first."""
        return [b.owner for b in self.chain(node) if isinstance(b.owner, LOOPS)]

    def chain(self, node: ast.stmt) -> list[Block]:
        """The blocks within its function that hold it, innermost first."""
        found = [self.block_of[node]]
        for owner in self.around(node):
            if isinstance(owner, HOLDERS):
                break
            found.append(self.block_of[owner])
        return found

    def at(self, line: int, function: str) -> list[ast.stmt]:
        """The innermost statements of a function on a line: several if `;` joins them."""
        found = [s for s in self.block_of if first_line(s) <= line <= last_line(s)]
        inner = [s for s in found if not any(s in self.around(other) for other in found)]
        around = () if not inner else self.around(inner[0])
        holder = next((s for s in around if isinstance(s, HOLDERS)), None)
        if not inner or getattr(holder, "name", "<module>") != function:
            raise RefusedError("changed", line, function)
        if isinstance(holder, ast.ClassDef):
            raise RefusedError("class_scope", line, function)
        return inner

    def owner_of(self, function: ast.stmt | None) -> str | None:
        """`self` of a method."""
        if function is None or not isinstance(self.block_of[function].owner, ast.ClassDef):
            return None
        if any(ast.unparse(d) == "staticmethod" for d in function.decorator_list):  # type: ignore[attr-defined]
            return None
        arguments = function.args  # type: ignore[attr-defined]
        first = [*arguments.posonlyargs, *arguments.args][:1]
        return first[0].arg if first else None


def first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """It and all statements within, those of functions in it too."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.stmt))


def reading_expression(nodes: Iterable[ast.AST], cause: Cause) -> ast.expr | None:
    """What reads on the host, if it is an expression of these statements."""
    if not cause.columns:
        return None
    place = (cause.line, *cause.columns)
    every = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.expr))
    fitting = (n for n in every if (n.lineno, n.col_offset, n.end_col_offset) == place)
    return next(fitting, None)


@dataclass(frozen=True)
class Anchor:
    """The function whose statements make the calls of the step, on these lines."""

    file: Path
    function: str
    lines: tuple[tuple[StepCallKind, int], ...]
    callers: tuple[tuple[str, int, str], ...]  # outermost first


def anchor_of(places: Sequence[Place]) -> Anchor:
    """Where the frames of the calls part. Raises RefusedError."""
    stacks = [[f for f in reversed(place.frames) if f[2] not in _PSEUDO] for place in places]
    if not any(stacks):
        raise RefusedError("no_place")
    if not all(stacks):
        shown, line, _ = next(filter(None, stacks))[-1]
        raise RefusedError("installed", line, file=Path(shown))
    depth = 0
    while all(len(s) > depth for s in stacks) and len({s[depth] for s in stacks}) == 1:
        depth += 1
    here = {s[depth][0::2] for s in stacks if len(s) > depth}
    if any(len(s) <= depth for s in stacks) or len(here) > 1:
        if not depth:
            first, other = stacks[0][0], next(s[0] for s in stacks if s[0] != stacks[0][0])
            reason: RefusalReason = "two_functions" if first[0] == other[0] else "two_files"
            name = f"{Path(other[0]).name}:{other[1]}"
            raise RefusedError(reason, first[1], name, file=Path(first[0]))
        depth -= 1
    file, _, function = stacks[0][depth]
    if file.startswith("<"):
        raise RefusedError("no_source", None, file)
    lines = tuple((place.what, stack[depth][1]) for place, stack in zip(places, stacks))
    return Anchor(Path(file), function, lines, tuple(stacks[0][:depth]))
