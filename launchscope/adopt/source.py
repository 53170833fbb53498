"""A Python file as two trees of the same statements: `ast` says what they do, libcst changes
them."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import libcst as cst

from launchscope.adopt.names import FUNCTIONS
from launchscope.adopt.patch import Place, Refusal, RefusalReason
from launchscope.model import StepCallKind
from launchscope.python_source import parsed

Role = Literal["before", "core", "after"]  # of the call
Unit: TypeAlias = cst.BaseSmallStatement | cst.BaseCompoundStatement
_PSEUDO = ("<lambda>", "<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
HOLDERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class RefusedError(Exception):
    """There is no patch; becomes a Refusal."""

    def __init__(
        self, reason: RefusalReason, node: ast.AST | int | None = None, name: str | None = None
    ):
        super().__init__(reason)
        self.reason, self.name = reason, name
        self.line = node if isinstance(node, int | None) else getattr(node, "lineno", None)

    def refusal(self, file: Path | None) -> Refusal:
        return Refusal(file, self.line, self.reason, self.name)


@dataclass(frozen=True)
class Edit:
    """`new` in place of a span of the text. `roles`: where in `new` a statement begins whose role
    is another one than that of the statement before the edit."""

    begin: int
    end: int
    new: str
    roles: tuple[tuple[int, Role], ...] = ()


@dataclass(eq=False)
class Block:
    """A list of statements, and the node of libcst that holds them."""

    owner: Statement | None  # None: the module
    holder: cst.BaseSuite | cst.Module
    statements: list[Statement] = field(default_factory=list)
    is_elif: bool = False  # it is one `if` that has no line of its own


@dataclass(eq=False)
class Statement:
    """One statement in both trees, and where it is."""

    node: ast.stmt
    unit: Unit
    line: cst.SimpleStatementLine | cst.BaseCompoundStatement | cst.SimpleStatementSuite
    block: Block
    blocks: list[Block] = field(default_factory=list)

    def around(self) -> Iterator[Statement]:
        """The compound statements that hold it, innermost first."""
        owner = self.block.owner
        while owner is not None:
            yield owner
            owner = owner.block.owner

    def function(self) -> Statement | None:
        """The function that it runs in; None: the module."""
        return next((s for s in self.around() if isinstance(s.node, FUNCTIONS)), None)

    def chain(self) -> list[Block]:
        """The blocks within its function that hold it, innermost first."""
        found = [self.block]
        for owner in self.around():
            if isinstance(owner.node, HOLDERS):
                break
            found.append(owner.block)
        return found

    def walk(self) -> Iterator[Statement]:
        """It and all statements within, those of functions in it too."""
        yield self
        for block in self.blocks:
            for statement in block.statements:
                yield from statement.walk()


class Source:
    """A file that was parsed twice. Raises RefusedError where it cannot be."""

    def __init__(self, file: Path, text: str, encoding: str):
        self.file, self.text, self.encoding = file, text, encoding
        try:
            self.tree = parsed(text)
            self.module = cst.parse_module(text).with_changes(encoding=encoding)
        except (SyntaxError, ValueError, cst.ParserSyntaxError, RecursionError) as error:
            line = getattr(error, "lineno", None) or getattr(error, "raw_line", None)
            raise RefusedError("unreadable", line) from None
        self._lines = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]
        self.body = self._block(None, self.module, self.tree.body)
        self.statements = [s for top in self.body.statements for s in top.walk()]
        self.names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        self.names |= {s.node.name for s in self.statements if isinstance(s.node, HOLDERS)}
        self.names |= {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.alias):
                self.names.add((node.asname or node.name).partition(".")[0])

    @classmethod
    def load(cls, file: Path, data: bytes) -> Source:
        try:
            module = cst.parse_module(data)
            same = module.bytes == data
        except (
            SyntaxError,
            ValueError,
            cst.ParserSyntaxError,
            RecursionError,
            LookupError,
        ) as error:
            raise RefusedError("unreadable", getattr(error, "raw_line", None)) from None
        if not same:
            raise RefusedError("unreadable")
        return cls(file, module.code, module.encoding)

    def offset(self, line: int, column: int) -> int:
        """Of a position that `ast` gives, whose columns count bytes of UTF-8."""
        begin = self._lines[line - 1]
        if self.text[begin : begin + column].isascii():
            return begin + column
        return begin + len(self.text[begin : begin + column].encode()[:column].decode())

    def line_break_before(self, position: int) -> str:
        """What ends a line in front of a statement at this place, and indents it as it is."""
        begin = self._lines[bisect_right(self._lines, position) - 1]
        return f"{self.module.default_newline}{self.text[begin:position]}"

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends in the text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self.offset(node.end_lineno, node.end_col_offset)
        return self.offset(node.lineno, node.col_offset), end

    def code(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def applied(self, edits: Iterable[Edit], begin: int = 0, end: int | None = None) -> str:
        """The text, or a part of it, after edits that do not overlap and lie within it."""
        parts, position = [], begin
        for edit in sorted(edits, key=lambda edit: (edit.begin, edit.end)):
            parts += [self.text[position : edit.begin], edit.new]
            position = edit.end
        return "".join([*parts, self.text[position : len(self.text) if end is None else end]])

    def _block(
        self, owner: Statement | None, holder: cst.BaseSuite | cst.Module, nodes: Sequence[ast.stmt]
    ) -> Block:
        block = Block(owner, holder)
        units: list[tuple[Any, Any]] = []
        if isinstance(holder, cst.SimpleStatementSuite):
            units = [(unit, holder) for unit in holder.body]
        else:
            for own in holder.body:
                parts = own.body if isinstance(own, cst.SimpleStatementLine) else [own]
                units += [(unit, own) for unit in parts]
        if len(units) != len(nodes):
            raise RefusedError("unreadable", nodes[0] if nodes else None)
        for node, (unit, line) in zip(nodes, units):
            statement = Statement(node, unit, line, block)
            block.statements.append(statement)
            statement.blocks = list(self._inner(statement, node, unit))
        return block

    def _inner(self, owner: Statement, node: ast.AST, unit: cst.CSTNode) -> Iterator[Block]:
        body = getattr(unit, "body", None)
        if isinstance(unit, cst.Match):
            assert isinstance(node, ast.Match)
            for case, its in zip(node.cases, unit.cases):
                yield self._block(owner, its.body, case.body)
            return
        if not isinstance(body, cst.BaseSuite):
            return
        yield self._block(owner, body, node.body)  # type: ignore[attr-defined]
        for handler, its in zip(getattr(node, "handlers", ()), getattr(unit, "handlers", ())):
            yield self._block(owner, its.body, handler.body)
        other = getattr(unit, "orelse", None)
        if isinstance(other, cst.If):  # elif
            (inner,) = node.orelse  # type: ignore[attr-defined]
            block = Block(owner, cst.SimpleStatementSuite(body=()), is_elif=True)
            statement = Statement(inner, other, other, block)
            block.statements.append(statement)
            statement.blocks = list(self._inner(statement, inner, other))
            yield block
        elif isinstance(other, cst.Else):
            yield self._block(owner, other.body, node.orelse)  # type: ignore[attr-defined]
        last = getattr(unit, "finalbody", None)
        if isinstance(last, cst.Finally):
            yield self._block(owner, last.body, node.finalbody)  # type: ignore[attr-defined]

    def at(self, line: int, function: str) -> list[Statement]:
        """The innermost statements of a function on a line: several if `;` joins them."""
        found = [s for s in self.statements if _first(s.node) <= line <= _last(s.node)]
        inner = [s for s in found if not any(i in found for b in s.blocks for i in b.statements)]
        holder = next(
            (s.node for i in inner for s in i.around() if isinstance(s.node, HOLDERS)), None
        )
        name = getattr(holder, "name", "<module>")
        if not inner or name != function:
            raise RefusedError("changed", line, function)
        if isinstance(holder, ast.ClassDef):
            raise RefusedError("class_scope", line, function)
        return inner

    def owner_of(self, function: Statement | None) -> str | None:
        """`self` of a method."""
        if function is None or function.block.owner is None:
            return None
        if not isinstance(function.block.owner.node, ast.ClassDef):
            return None
        arguments = function.node.args  # type: ignore[attr-defined]
        first = [*arguments.posonlyargs, *arguments.args][:1]
        return first[0].arg if first else None


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


@dataclass(frozen=True)
class Anchor:
    """The function whose statements make the calls of the step. `marks` are these statements with
    what they do; `repeats`: it is called again and again, by a loop of the person's."""

    file: Path
    function: str
    lines: tuple[tuple[StepCallKind, int], ...]
    callers: tuple[tuple[str, int, str], ...]  # outermost first


def anchor_of(places: Sequence[Place]) -> Anchor:
    """Where the frames of the calls part. Raises RefusedError."""
    stacks: list[list[tuple[str, int, str]]] = []
    for place in places:
        frames = [f for f in reversed(place.frames) if f[2] not in _PSEUDO]
        if not frames:
            raise RefusedError(
                "installed" if stacks or len(places) > 1 else "no_place", None, place.what
            )
        stacks.append(frames)
    if not stacks:
        raise RefusedError("no_place")
    depth = 0
    while all(len(s) > depth for s in stacks) and len({s[depth] for s in stacks}) == 1:
        depth += 1
    here = {s[depth][0::2] for s in stacks if len(s) > depth}
    if any(len(s) <= depth for s in stacks) or len(here) > 1:
        if not depth:
            files = {s[0][0] for s in stacks}
            raise RefusedError("two_files" if len(files) > 1 else "two_functions")
        depth -= 1
    file, _, function = stacks[0][depth]
    if file.startswith("<"):
        raise RefusedError("no_source", None, file)
    lines = tuple((place.what, stack[depth][1]) for place, stack in zip(places, stacks))
    return Anchor(Path(file), function, lines, tuple(stacks[0][:depth]))
