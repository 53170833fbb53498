"""A loop over micro-steps that fetches batches becomes two: one fetches, the other one trains.

The second is part of the step, and gets the batches as a list.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from launchscope.adopt.definitions import Imports
from launchscope.adopt.effects import effects_of
from launchscope.adopt.names import NOTHING, Names, Uses
from launchscope.adopt.patch import Patch
from launchscope.adopt.region import LOOPS, Region, calls_of
from launchscope.adopt.sorting import Item, conflict, is_plain, region_state
from launchscope.adopt.source import RefusedError, Source, Statement
from launchscope.model import StepCallKind as Call


@dataclass(frozen=True)
class Fission:
    """The source with two loops, and the statements of the step in it. `lists` is the name of the
    list of batches; `fetched` are names that the first loop leaves as the one loop did, so the step
    must not bind them for what follows."""

    source: Source
    marks: dict[Statement, frozenset[Call]]
    inferring: frozenset[Statement]
    lists: Names
    fetched: Names
    _lines: Mapping[int, int]  # of the first source, by line of this one

    def restored(self, patch: Patch) -> Patch:
        """With the lines of the file as it was."""
        lines = self._lines
        return replace(
            patch,
            first_line=lines[patch.first_line],
            last_line=lines[patch.last_line],
            hunks=tuple((fix, lines[line]) for fix, line in patch.hunks),
        )


def fission(
    source: Source,
    marks: dict[Statement, frozenset[Call]],
    inferring: frozenset[Statement],
    known: Imports,
) -> Fission | None:
    """None where there is no such loop, or where its parts depend on each other."""
    loop = _loop(marks)
    if loop is None:
        return None
    body = loop.blocks[0].statements
    owner = source.owner_of(loop.function())
    region = Region(source, loop.blocks[0], 0, len(body) - 1, marks, "forward_backward", True)
    items = [Item(s, region.calls_in(s), (), False) for s in body]
    state = region_state(items, region, owner, known)
    made = frozenset(Uses([i.statement.node for i in items if i.calls], owner).binds)
    for item in items:
        item.effects = effects_of(item.statement.node, made, state, known, owner)
    fetches = _fetches(items, state)
    rest = [item for item in items if item not in fetches]
    if any(item.effects.leaves is not None for item in items):
        return None
    names = _carried(items, fetches)
    if not names or any(conflict(f, rest, state, {}, known, owner) - {*names} for f in fetches):
        return None
    changed = {n for item in rest for n in item.effects.uses.binds | item.effects.changes}
    fetched = {n for item in fetches for n in item.effects.uses.binds}
    fetched |= Uses([loop.node.target]).binds  # type: ignore[attr-defined]
    readers = [i for i, item in enumerate(items) if item in rest and _reads(item, names)]
    binders = [i for i, item in enumerate(items) if item in fetches and _binds(item, names)]
    first = max(readers) < min(binders)  # each batch is fetched one iteration earlier
    if fetched & changed or not (first or min(readers) > max(binders)):
        return None
    # What functions of the file read that one part calls and the other part changes.
    if fetched & _reached(rest, known) or changed & _reached(fetches, known):
        return None
    if fetched & _read_behind(loop, marks, owner):
        return None
    start = _start(loop, marks)
    between = [Item(s, frozenset(marks.get(s, ())), (), False) for s in start]
    for item in between:
        item.effects = effects_of(item.statement.node, made, state, known, owner)
    behind = Uses([item.statement.node for item in between], owner)
    for item in fetches:
        apart = conflict(item, between, state, {}, known, owner) - {*names}
        if apart or item.effects.uses.binds & (behind.reads | behind.binds):
            return None
    text = _Text(source, loop, fetches, rest, start[0] if start else loop)
    return text.split(names, first, marks, inferring, fetched)


def _loop(marks: dict[Statement, frozenset[Call]]) -> Statement | None:
    """The loop over a range, in another one, that has the forward and the backward in it, and
    nothing of the update."""
    inside = [s for s, calls in marks.items() if calls & {"forward", "backward"}]
    if not {"forward", "backward", "step"} <= calls_of(marks):
        return None
    for owner in inside[0].around():
        node = owner.node
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            within = set(owner.walk())
            if (
                getattr(node.iter.func, "id", "") == "range"
                and isinstance(node.target, ast.Name)
                and not node.orelse
                and within.issuperset(inside)
                and not any("step" in calls for s, calls in marks.items() if s in within)
            ):
                return owner
        if isinstance(node, LOOPS):
            return None
    return None


def _fetches(items: list[Item], state: Names) -> list[Item]:
    """The statements that get a batch, and what only takes it apart."""
    found: list[Item] = []
    bound: set[str] = set()
    for item in items:
        effects = item.effects
        if (
            item.calls
            or effects.leaves is not None
            or not isinstance(item.statement.node, ast.Assign)
        ):
            continue
        takes_apart = is_plain(item, state) and effects.uses.reads & bound
        if effects.fetch or (effects.copies and not effects.host) or takes_apart:
            found.append(item)
            bound |= effects.uses.binds
    return found


def _carried(items: list[Item], fetches: list[Item]) -> list[str]:
    """What the fetches bind and the rest reads, in order."""
    read = {n for item in items if item not in fetches for n in item.effects.uses.reads}
    bound = [name for item in fetches for name in _in_order(item.statement.node)]
    return [name for name in dict.fromkeys(bound) if name in read]


def _in_order(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [
        n.id for t in targets for n in ast.walk(t)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]  # fmt: skip


def _reads(item: Item, names: list[str]) -> bool:
    return bool(item.effects.uses.reads.intersection(names))


def _binds(item: Item, names: list[str]) -> bool:
    return bool(item.effects.uses.binds.intersection(names))


def _start(loop: Statement, marks: dict[Statement, frozenset[Call]]) -> list[Statement]:
    """The statements of the step in front of the loop, such as zero_grad()."""
    statements = loop.block.statements
    before = statements[: statements.index(loop)]
    own = [s for s in before if any(inner in marks for inner in s.walk())]
    return before[before.index(own[0]) :] if own else []


def _reached(items: list[Item], known: Imports) -> Names:
    return known.reached(frozenset(n for item in items for n in item.effects.uses.reads))


def _read_behind(
    loop: Statement, marks: dict[Statement, frozenset[Call]], owner: str | None
) -> Names:
    """What the rest of the step reads, in which the names of the loop would be the list's."""
    statements = loop.block.statements
    tops = [s for m in marks for s in (m, *m.around()) if s.block is loop.block]
    last = max(statements.index(s) for s in tops)
    rest = statements[statements.index(loop) + 1 : last + 1]
    return frozenset(Uses([s.node for s in rest], owner).reads) if rest else NOTHING


class _Text:
    """The loop in lines."""

    def __init__(
        self,
        source: Source,
        loop: Statement,
        fetches: list[Item],
        rest: list[Item],
        start: Statement,
    ):
        self._source, self._loop, self._start = source, loop, start
        self._fetches = {item.statement for item in fetches}
        self._rest = [item.statement.node for item in rest]

    def split(
        self,
        names: list[str],
        first: bool,
        marks: dict[Statement, frozenset[Call]],
        inferring: frozenset[Statement],
        fetched: set[str],
    ) -> Fission | None:
        source, node = self._source, self._loop.node
        assert isinstance(node, ast.For)
        text = source.text.splitlines(keepends=True)
        head = range(node.lineno, (node.iter.end_lineno or 0) + 1)
        indent, inner = (text[n - 1][: len(text[n - 1]) - len(text[n - 1].lstrip())]
                         for n in (node.lineno, node.body[0].lineno))  # fmt: skip
        newline = text[node.lineno - 1][len(text[node.lineno - 1].rstrip("\r\n")) :]
        taken, number = "batches", 1
        while taken in source.names:
            number += 1
            taken = f"batches_{number}"
        value = f"({', '.join(names)})" if len(names) > 1 else names[0]
        counts = node.target.id in Uses(self._rest).reads  # type: ignore[attr-defined]
        over = f"zip({source.code(node.iter)}, {taken})" if counts else taken
        each = f"{source.code(node.target)}, {value}" if counts else ", ".join(names)
        chunks, at = [], head.stop
        for statement in self._loop.blocks[0].statements:
            end = statement.node.end_lineno or 0
            if statement.node.lineno < at:  # on the line of the one before
                return None
            chunks.append((statement, range(at, end + 1)))
            at = end + 1
        append: list[int | str] = [f"{inner}{taken}.append({value}){newline}"]
        get = [n for s, lines in chunks if s in self._fetches for n in lines]
        train = [n for s, lines in chunks if s not in self._fetches for n in lines]
        begin = self._start.node.lineno
        if self._start is not self._loop:
            while text[begin - 2].startswith(f"{indent}#"):
                begin -= 1
        made: list[int | str] = [
            *range(1, begin), f"{indent}{taken} = []{newline}", *head,
            *(append if first else ()), *get, *(() if first else append),
            *range(begin, node.lineno),
            f"{indent}for {each} in {over}:{newline}", *train, *range(at, len(text) + 1),
        ]  # fmt: skip
        lines = {n: node.lineno if isinstance(line, str) else line
                 for n, line in enumerate(made, 1)}  # fmt: skip
        code = "".join(line if isinstance(line, str) else text[line - 1] for line in made)
        try:
            changed = Source(source.file, code, source.encoding)
        except RefusedError:
            return None
        of_line = {(lines[s.node.lineno], s.node.col_offset): s for s in changed.statements
                   if not isinstance(made[s.node.lineno - 1], str)}  # fmt: skip
        now = {s: of_line.get((s.node.lineno, s.node.col_offset)) for s in (*marks, *inferring)}
        if any(new is None or type(new.node) is not type(old.node) for old, new in now.items()):
            return None
        found = {new: marks[old] for old, new in now.items() if new is not None and old in marks}
        also = frozenset(new for old, new in now.items() if new is not None and old in inferring)
        return Fission(changed, found, also, frozenset((taken,)), frozenset(fetched), lines)
