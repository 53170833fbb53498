"""The statements that make up the step: which block holds them, and from where to where."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launchscope.adopt.names import Names, Uses, parameters
from launchscope.adopt.patch import Covered, RefusedError
from launchscope.adopt.source import (
    LOOPS,
    Anchor,
    Block,
    Source,
    first_line,
    last_line,
    statements_in,
)
from launchscope.model import StepCallKind as Call

Marks = dict[ast.stmt, frozenset[Call]]


@dataclass(frozen=True)
class Region:
    """`first` to `last` of the statements of `block`, inclusive. `marks` are the statements that
    make the calls of the step, with these; they may be deeper inside."""

    source: Source
    block: Block
    first: int
    last: int
    marks: Marks
    covered: Covered
    repeats: bool  # its function is called again and again, by a loop of the person's

    @property
    def statements(self) -> Sequence[ast.stmt]:
        return self.block.statements[self.first : self.last + 1]

    @property
    def units(self) -> list[list[ast.stmt]]:
        """The statements by the lines that they share."""
        found: list[list[ast.stmt]] = []
        for statement in self.statements:
            if found and first_line(statement) == last_line(found[-1][-1]):
                found[-1].append(statement)
            else:
                found.append([statement])
        return found

    @property
    def function(self) -> ast.stmt | None:
        return self.source.function(self.statements[0])

    @property
    def loops(self) -> list[ast.stmt]:
        """Around it within its function, innermost first."""
        return self.source.loops(self.statements[0])

    def changing(self, owner: str | None) -> Names:
        """The names that are not the same in all calls of the function."""
        if self.function is None or not self.repeats:
            return frozenset(Uses(self.loops[-1:], owner).binds)
        bound = Uses(self.function.body, owner).binds  # type: ignore[attr-defined]
        return frozenset(bound) | parameters(self.function) | ({owner} if owner else set())

    def read_after(self, owner: str | None) -> Names:
        """What may be read after its last statement: there, or in another iteration."""
        found: set[str] = set()
        node = self.statements[-1]
        for block in self.source.chain(node):
            after = block.statements[block.statements.index(node) + 1 :]
            node = block.owner or node
            again = [node] if isinstance(node, (*LOOPS, ast.Try)) else []
            found |= Uses(after, owner).exposed | Uses(again, owner).exposed
        return frozenset(found)

    def bound_before(self, owner: str | None) -> Names:
        """What is bound in every run that reaches it."""
        found: set[str] = set()
        node = self.statements[0]
        for block in self.source.chain(node):
            around: list[ast.AST] = []
            if isinstance(block.owner, ast.For | ast.AsyncFor):
                around = [block.owner.iter, block.owner.target]
            elif isinstance(block.owner, ast.With | ast.AsyncWith):
                around = [*block.owner.items]
            before = block.statements[: block.statements.index(node)]
            found |= Uses([*around, *before], owner).bound
            node = block.owner or node
        return frozenset(found)

    def calls_in(self, statement: ast.stmt) -> frozenset[Call]:
        return frozenset[Call]().union(*(self.marks.get(s, ()) for s in statements_in(statement)))


def marked_calls(source: Source, anchor: Anchor) -> Marks:
    """The statements at which the calls were made, in order. Raises RefusedError."""
    found: dict[ast.stmt, set[Call]] = {}
    for what, line in anchor.lines:
        if what == "inference":
            continue
        fitting = [s for s in source.at(line, anchor.function) if any(own_calls(s))]
        if not fitting:
            raise RefusedError("changed", line, what)
        for statement in fitting:
            found.setdefault(statement, set()).add(what)
    if not found:
        raise RefusedError("no_place")
    return {s: frozenset(found[s]) for s in sorted(found, key=lambda s: (s.lineno, s.col_offset))}


def own_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """What a statement itself calls, without the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from (inner for inner in ast.walk(child) if isinstance(inner, ast.Call))


def repeats(anchor: Anchor, read: Callable[[Path], Source]) -> bool:
    """Whether a function of the person's calls that of the step in a loop."""
    for file, line, function in anchor.callers:
        with suppress(RefusedError, OSError):
            source = read(Path(file))
            if any(source.loops(s) for s in source.at(line, function)):
                return True
    return False


def regions(source: Source, marks: Marks, again: bool) -> Iterator[Region]:
    """What may be moved into one function: the whole step first, then parts of it."""
    calls = calls_of(marks)
    whole: Covered = "step" if "step" in calls else "forward_backward"
    trains = not calls.isdisjoint({"backward", "step"})
    yield region_of(source, marks, whole if trains else "forward", again)
    if "backward" not in calls:
        return
    parts = list(_parts(marks))
    several = sum("backward" in calls_of(part) for part in parts) > 1
    covered: Covered = "part" if several else whole
    choices: list[tuple[Marks, Covered]] = [
        (dict(list(part.items())[at:]), covered) for part in parts for at in range(len(part))
    ]
    both = {s: c for s, c in marks.items() if c & {"forward", "backward"}}
    tried = [marks]
    for part, covered in (*choices, (both, "forward_backward")):
        if part not in tried and {"forward", "backward"} <= calls_of(part):
            tried.append(part)
            with suppress(RefusedError):
                yield region_of(source, part, covered, again)


def calls_of(marks: Marks) -> frozenset[Call]:
    return frozenset[Call]().union(*marks.values())


def _parts(marks: Marks) -> Iterator[Marks]:
    """From one optimizer's step to the next."""
    part: Marks = {}
    for statement, calls in marks.items():
        part[statement] = calls
        if "step" in calls:
            yield part
            part = {}
    if part:
        yield part


def region_of(source: Source, marks: Marks, covered: Covered, again: bool) -> Region:
    """The smallest block that holds all of `marks`. Raises RefusedError."""
    chains = [source.chain(statement) for statement in marks]
    common = [block for block in chains[0] if all(block in chain for chain in chains)]
    if not common:
        other = next(s for s, chain in zip(marks, chains) if chain[-1] is not chains[0][-1])
        name = f"{source.file.name}:{other.lineno}"
        raise RefusedError("two_functions", next(iter(marks)), name)
    block = common[0]
    while _has_no_line(source, block):
        assert block.owner is not None
        block = source.block_of[block.owner]
    indices = [
        at for at, statement in enumerate(block.statements)
        if not marks.keys().isdisjoint(statements_in(statement))
    ]  # fmt: skip
    first = _with_functions(block.statements, min(indices), max(indices))
    first, last = _whole_lines(block.statements, first, max(indices))
    region = Region(source, block, first, last, marks, covered, again)
    if not region.loops and not again:
        raise RefusedError("no_loop", region.statements[0])
    return region


def _with_functions(statements: Sequence[ast.stmt], first: int, last: int) -> int:
    """Where it begins with the functions that are made for it, as the closure of an optimizer."""
    used = {n.id for s in statements[first : last + 1] for n in ast.walk(s) if type(n) is ast.Name}
    made = (at for at, s in enumerate(statements[:first]) if getattr(s, "name", None) in used)
    return min(made, default=first)


def _whole_lines(statements: Sequence[ast.stmt], first: int, last: int) -> tuple[int, int]:
    """With what shares the lines at the ends."""
    while first > 0 and last_line(statements[first - 1]) == first_line(statements[first]):
        first -= 1
    while last + 1 < len(statements) and (
        first_line(statements[last + 1]) == last_line(statements[last])
    ):
        last += 1
    return first, last


def _has_no_line(source: Source, block: Block) -> bool:
    """Whether its statements share the line of what they are in: `elif`, `if x: y`."""
    if block.owner is None:
        return False
    first = block.statements[0]
    is_elif = isinstance(first, ast.If) and source.code(first).startswith("elif")
    begin = source.lines[first.lineno - 1][: first.col_offset]
    return is_elif or bool(begin.strip())
