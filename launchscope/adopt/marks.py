"""Calls in the files of runs that are compared: where a step begins that calls no optimizer, and
what it computes, because nothing else shows both; where an iteration begins; and tests that can be
switched."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from launchscope.adopt.names import FUNCTIONS, Uses
from launchscope.adopt.observation import BEGIN, ITERATION, OUTPUT
from launchscope.adopt.outline import Outline
from launchscope.adopt.patch import Patch
from launchscope.adopt.region import LOOPS, own_calls
from launchscope.adopt.source import Block, Edit, RefusedError, Source, Statement
from launchscope.adopt.switches import body_of, candidates, common, switched


def marked(plan: Outline, outputs: Iterable[str]) -> bytes:
    """The file with these calls and no other change. `outputs`: what the function returns."""
    region = plan.region
    source = region.source
    first, last = region.statements[0].node, region.statements[-1].node
    at = source.span(first)[0]
    edits = [Edit(at, at, f"{BEGIN}(){_separator(source.text, first, at)}")]
    owner = source.owner_of(region.function)
    bound = Uses([s.node for s in region.statements], owner).binds
    noted = []
    for name in outputs:
        original = plan.attributes.get(name, name)
        if (span := plan.values.get(name)) is not None:
            edits.append(Edit(span[0], span[0], f"{OUTPUT}({name!r}, "))
            edits.append(Edit(span[1], span[1], ")"))
        elif original in bound:
            noted.append(f"{OUTPUT}({name!r}, {original})")
    if noted and not isinstance(last, ast.Return):
        end = source.span(last)[1]
        begin = source.span(last)[0]
        edits.append(Edit(end, end, _separator(source.text, last, begin) + "; ".join(noted)))
    return source.applied(edits).encode(source.encoding)


@dataclass(frozen=True)
class Iterating:
    """A file that says where the loop, or the function, around the step begins anew. Lines from
    `first` on are further down by `added`."""

    file: Path
    content: bytes
    first: int = 0
    added: int = 0

    def line(self, number: int) -> int:
        """Where a line of the file without the call is."""
        return number + self.added * (number >= self.first)


def iterating_original(patch: Patch, *, marked: bool, switches: Sequence[str] = ()) -> Iterating:
    """The original, or what is `marked` of it, in which these tests can be switched."""
    return _iterating(patch, *_original(patch, marked=marked), switches)


def iterating_patched(patch: Patch, switches: Sequence[str] = ()) -> Iterating:
    return _iterating(patch, *_patched(patch), switches)


def switches_of(patch: Patch, *, marked: bool) -> tuple[str, ...]:
    """The tests of an iteration that can be switched in both versions, by their code."""
    try:
        plain = _parts(patch, *_original(patch, marked=False))
        found = candidates(plain, patch.first_line, patch.last_line)
        before = _parts(patch, *_original(patch, marked=marked))
        return tuple(common(found, before, _parts(patch, *_patched(patch))))
    except RefusedError:
        return ()


_IsStep: TypeAlias = Callable[[Statement], bool]


def _original(patch: Patch, *, marked: bool) -> tuple[bytes, _IsStep]:
    """The file, and which of its statements begins the step."""
    if marked:
        return patch.marked, lambda statement: _calls(statement, BEGIN)
    return patch.before, lambda statement: statement.node.lineno == patch.first_line


def _patched(patch: Patch) -> tuple[bytes, _IsStep]:
    return patch.after, lambda statement: _calls(statement, patch.function)


def _calls(statement: Statement, name: str) -> bool:
    calls = (call.func for call in own_calls(statement.node))
    return any(isinstance(func, ast.Name) and func.id == name for func in calls)


def _parts(patch: Patch, data: bytes, is_step: _IsStep) -> list[ast.AST]:
    """All statements of an iteration, those of the new function too. Raises RefusedError."""
    source = Source.load(patch.file, data)
    block = _iteration(source, is_step)
    return [] if block is None else _switchable(source, block, patch.function)


def _switchable(source: Source, block: Block, function: str) -> list[ast.AST]:
    return [*(statement.node for statement in block.statements), *body_of(source, function)]


def _iteration(source: Source, is_step: _IsStep) -> Block | None:
    """The body of the loop, or the function, around the step."""
    step = next(filter(is_step, source.statements), None)
    blocks = () if step is None else step.chain()
    around = (*LOOPS, *FUNCTIONS)
    return next((b for b in blocks if b.owner and isinstance(b.owner.node, around)), None)


def _iterating(patch: Patch, data: bytes, is_step: _IsStep, switches: Sequence[str]) -> Iterating:
    unmarked = Iterating(patch.file, data)
    try:
        source = Source.load(patch.file, data)
    except RefusedError:
        return unmarked
    block = _iteration(source, is_step)
    if block is None:
        return unmarked
    first = next((s.node for s in block.statements if not _is_docstring(s.node)), None)
    if first is None:
        return unmarked
    decorators = getattr(first, "decorator_list", ())
    at = min(source.span(node)[0] for node in (first, *decorators))
    at = source.text.rindex("@", 0, at) if decorators else at
    separator = _separator(source.text, first, at)
    edits = switched(source, _switchable(source, block, patch.function), switches)
    text = source.applied([Edit(at, at, f"{ITERATION}(){separator}"), *edits])
    line = min(node.lineno for node in (first, *decorators))
    return Iterating(patch.file, text.encode(source.encoding), line, separator.count("\n"))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _separator(text: str, node: ast.stmt, begin: int) -> str:
    """Between a statement and another one beside it; a compound one has lines of its own."""
    if not hasattr(node, "body"):
        return "; "
    return "\n" + text[text.rfind("\n", 0, begin) + 1 : begin]
