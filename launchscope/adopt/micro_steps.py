"""A loop over micro-steps that fetches batches becomes two: one fetches, the other one trains.

The second is part of the step, and gets the batches as a list.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from launchscope.adopt.observation import Observation
from launchscope.adopt.region import Marks, Region, calls_of
from launchscope.adopt.roles import Item, conflict, items_of
from launchscope.adopt.source import Source
from launchscope.adopt.split_source import NewLines, SplitSource


def split_loop(source: Source, marks: Marks, seen: Observation) -> SplitSource | None:
    """None where there is no such loop, or where its parts depend on each other."""
    loop = _loop(source, marks)
    if loop is None:
        return None
    owner = source.owner_of(source.function(loop))
    body = source.block_of[loop.body[0]]
    region = Region(source, body, 0, len(body.statements) - 1, marks, "forward_backward", True)
    items = items_of(region, seen, owner)
    fetches = [item for item in items if (item.host_reads or item.values) and not item.calls]
    rest = [item for item in items if item not in fetches]
    carried = _carried(fetches, rest)
    first = _is_first(items, fetches, carried)
    apart = {name for f in fetches for item in rest if (name := conflict(f, item))} - {*carried}
    if not carried or first is None or apart or any(item.jumps for item in items):
        return None
    start = min(s.lineno for s in marks if source.block_of[s] is source.block_of[loop])
    start = min(start, loop.lineno)
    return _in_lines(source, loop, (fetches, rest), carried, first, start).located(marks, seen)


def _loop(source: Source, marks: Marks) -> ast.For | None:
    """The loop, in another one, that has the forward and the backward in it, and nothing of the
    update."""
    inside = {s for s, calls in marks.items() if calls & {"forward", "backward"}}
    if not {"forward", "backward", "step"} <= calls_of(marks):
        return None
    loops = source.loops(next(iter(inside)))
    loop = loops[0] if len(loops) > 1 else None
    within = {s for s in marks if loop in source.around(s)}
    is_plain = isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and not loop.orelse
    return loop if is_plain and within == inside else None  # type: ignore[return-value]


def _carried(fetches: list[Item], rest: list[Item]) -> list[str]:
    """What the fetches bind and the rest reads, in order."""
    read = {name for item in rest for name in item.uses.reads}
    bound = [
        node.id
        for item in fetches for statement in item.nodes for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]  # fmt: skip
    return [name for name in dict.fromkeys(bound) if name in read]


def _is_first(items: list[Item], fetches: list[Item], carried: list[str]) -> bool | None:
    """Whether each batch is fetched one iteration earlier, and not before it is read."""
    names = {*carried}
    readers = [i for i, item in enumerate(items) if item not in fetches and item.reads & names]
    binders = [i for i, item in enumerate(items) if item in fetches and item.uses.binds & names]
    if not readers or not (max(readers) < min(binders) or min(readers) > max(binders)):
        return None
    return max(readers) < min(binders)


def _in_lines(
    source: Source,
    loop: ast.For,
    parts: tuple[list[Item], list[Item]],
    carried: list[str],
    first: bool,
    start: int,
) -> NewLines:
    newline, outer = source.newline, source.indent(loop.lineno)
    inner = source.indent(loop.body[0].lineno)
    batches, value = source.fresh("batches"), ", ".join(carried)
    value = f"({value})" if len(carried) > 1 else value
    counts = any(loop.target.id in item.reads for item in parts[1])  # type: ignore[attr-defined]
    over = f"zip({source.code(loop.iter)}, {batches})" if counts else batches
    each = f"{source.code(loop.target)}, {value}" if counts else ", ".join(carried)
    head = range(loop.lineno, loop.body[0].lineno)
    ends, at = {}, head.stop
    for item in sorted((*parts[0], *parts[1]), key=lambda item: item.first):
        ends[item.first] = range(at, item.last + 1)
        at = item.last + 1
    get, train = ([n for item in part for n in ends[item.first]] for part in parts)
    append = (loop.lineno, f"{inner}{batches}.append({value}){newline}")

    def kept(numbers: Sequence[int]) -> list[tuple[int, str]]:
        return [(n, source.lines[n - 1]) for n in numbers]

    texts = [
        *kept(range(1, start)),
        (loop.lineno, f"{outer}{batches} = []{newline}"), *kept(head),
        *([append] if first else []), *kept(get), *([] if first else [append]),
        *kept(range(start, loop.lineno)),
        (loop.lineno, f"{outer}for {each} in {over}:{newline}"), *kept(train),
        *kept(range(at, len(source.lines) + 1)),
    ]  # fmt: skip
    fetched = {n for item in parts[0] for n in item.uses.binds} | {loop.target.id}  # type: ignore[attr-defined]
    return NewLines(source, texts, frozenset(fetched))
