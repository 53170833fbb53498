"""A branch of the step that also reads or keeps a value becomes two: the second one does that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from launchscope.adopt.observation import Observation
from launchscope.adopt.patch import RefusedError
from launchscope.adopt.region import Marks, Region, region_of
from launchscope.adopt.roles import Item, conflict, items_of
from launchscope.adopt.source import Source, first_line, last_line, statements_in
from launchscope.adopt.split_source import NewLines, SplitSource

_SPLIT = (ast.If, ast.With)


def split_branches(source: Source, marks: Marks, seen: Observation) -> SplitSource | None:
    """None where no branch with a call of the step does anything else."""
    try:
        region = region_of(source, marks, "step", True)
    except RefusedError:
        return None
    apart = set(_host_statements(source, region.statements, marks, seen))
    holders = [s for s in region.statements if any(inner in apart for inner in statements_in(s))]
    if not apart:
        return None
    texts, at = [], 1
    for holder in holders:
        first = first_line(holder)
        texts += [(n, source.lines[n - 1]) for n in range(at, first)]
        for hosts in (False, True):
            texts += _copied(source, [holder], first, apart, hosts=hosts)
        at = last_line(holder) + 1
    texts += [(n, source.lines[n - 1]) for n in range(at, len(source.lines) + 1)]
    return NewLines(source, texts).located(marks, seen)


def _host_statements(
    source: Source, statements: Sequence[ast.stmt], marks: Marks, seen: Observation
) -> Iterator[ast.stmt]:
    """Within branches that make calls of the step, and that can run behind them."""
    for holder in statements:
        if not isinstance(holder, _SPLIT) or marks.keys().isdisjoint(statements_in(holder)):
            continue
        for nodes in (holder.body, getattr(holder, "orelse", [])):
            if nodes:
                yield from _host_statements(source, nodes, marks, seen)
                yield from _behind(source, nodes, marks, seen)


def _behind(
    source: Source, nodes: list[ast.stmt], marks: Marks, seen: Observation
) -> Iterator[ast.stmt]:
    block = source.block_of[nodes[0]]
    region = Region(source, block, 0, len(nodes) - 1, marks, "step", True)
    items = items_of(region, seen, source.owner_of(source.function(nodes[0])))
    for index, item in enumerate(items):
        later = [other for other in items[index + 1 :] if not _is_host(other)]
        if _is_host(item) and not any(conflict(item, other) for other in later):
            yield from item.nodes


def _is_host(item: Item) -> bool:
    return bool(item.ran and (item.host_reads or item.values) and not (item.calls or item.jumps))


def _copied(
    source: Source, nodes: list[ast.stmt], begin: int, apart: set[ast.stmt], *, hosts: bool
) -> list[tuple[int, str]]:
    """The lines of a block that begins there, with the statements that are `apart` (`hosts`) or
    with the others."""
    found: list[tuple[int, str]] = []
    for node in nodes:
        bodies = [body for name in ("body", "orelse") if (body := getattr(node, name, []))]
        mixed = node not in apart and any(inner in apart for inner in statements_in(node))
        for body in bodies if mixed else ():
            first = first_line(body[0])
            found += [(n, source.lines[n - 1]) for n in range(begin, first)]
            found += _copied(source, body, first, apart, hosts=hosts)
            begin = last_line(body[-1]) + 1
        if not mixed and (node in apart) == hosts:
            found += [(n, source.lines[n - 1]) for n in range(begin, last_line(node) + 1)]
        begin = last_line(node) + 1
    if not found:
        first = first_line(nodes[0])
        found.append((first, f"{source.indent(first)}pass{source.newline}"))
    return found
