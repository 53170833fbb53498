"""Which statements of a step go into the new function, and which before or behind its call: what
ran decides."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launchscope.adopt.names import Names, Uses
from launchscope.adopt.observation import RANDOM, Cause, Observation, SeenLine
from launchscope.adopt.patch import RefusedError
from launchscope.adopt.region import Marks, Region
from launchscope.adopt.source import LOOPS, first_line, last_line, reading_expression
from launchscope.model import ReasonCode
from launchscope.model import StepCallKind as Call

Role = Literal["before", "core", "behind"]
_RATES = "param_groups"  # of an optimizer
_JUMPS = (ast.Break, ast.Continue, ast.Return)
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)


@dataclass
class Item:
    """The statements on some lines of their own. `values`: what they were seen to change outside of
    the step, `tensors` what they wrote to."""

    nodes: list[ast.stmt]
    calls: frozenset[Call]
    uses: Uses
    operations: int = 0
    host_reads: int = 0
    values: frozenset[str] = frozenset()
    tensors: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    causes: tuple[Cause, ...] = ()
    ran: bool = True
    jumps: bool = False
    selects: bool = False  # it reads a part that the call can pass
    fills: bool = False  # it writes to a tensor that the call passes, as `total += loss.detach()`
    role: Role = "core"

    @property
    def first(self) -> int:
        return first_line(self.nodes[0])

    @property
    def last(self) -> int:
        return last_line(self.nodes[-1])

    @property
    def reads(self) -> Names:
        """With what the code that it runs was seen to read."""
        return frozenset(self.uses.reads) | self.read

    @property
    def text(self) -> str:
        return ast.unparse(self.nodes[0]).partition("\n")[0][:80]

    @property
    def changes(self) -> frozenset[str]:
        return self.values | self.tensors

    @property
    def is_inert(self) -> bool:
        """Whether it may as well run where the step does: it was seen to do no more than to bind
        names, or has never run."""
        return not (self.host_reads or self.values or self.jumps)

    def calls_for(self, cause: Cause) -> bool:
        """Whether it is on another line, of a function that the statements call."""
        return bool(cause.file) or not self.first <= cause.line <= self.last

    def refused(self, reason: ReasonCode) -> RefusedError:
        """With the line that is the cause, which may be in a function that this one calls."""
        wanted = {"host_read": {""}, "leaves_step": set()}.get(reason, self.values)
        cause = next((cause for cause in self.causes if cause.changed in wanted), None)
        if cause is None:
            return RefusedError(reason, self.nodes[0], self.text)
        name = cause.code if self.calls_for(cause) and cause.code else self.text
        file = Path(cause.file) if cause.file else None
        return RefusedError(reason, cause.line, name, why=cause.why, file=file)


def items_of(region: Region, seen: Observation, owner: str | None) -> list[Item]:
    """In the order of the source, each with what was seen of it."""
    lines = {line.line: line for line in seen.lines}
    found: list[Item] = []
    inside: set[str] = set()  # names that the step binds
    changing = region.changing(owner)
    for nodes in region.units:
        calls = frozenset[Call]().union(*map(region.calls_in, nodes))
        item = Item(nodes, calls, Uses(nodes, owner))
        given = changing & item.uses.exposed - inside
        inside |= {name for name in item.uses.binds if "." not in name}
        own = [lines[n] for n in range(item.first, item.last + 1) if n in lines]
        item.operations = sum(line.operations for line in own)
        item.host_reads = sum(line.host_reads for line in own)
        item.values = frozenset(v for v in _union(own, "values") if not related(v, inside))
        item.values, item.tensors = (
            _everywhere(v, seen) for v in (item.values, _union(own, "tensors"))
        )
        item.fills = not given.isdisjoint(_union(own, "written"))
        item.read = _union(own, "read")
        named = (n.attr for node in nodes for n in ast.walk(node) if isinstance(n, ast.Attribute))
        item.attributes = _union(own, "attributes").union(named)
        item.causes = tuple(cause for line in own for cause in line.causes)
        item.ran = bool(own)
        item.jumps = any(isinstance(node, _JUMPS) for node in _own(nodes))
        item.selects = not (item.values or item.jumps) and _selects(item, inside)
        found.append(item)
    return found


def _selects(item: Item, inside: set[str]) -> bool:
    """Whether all that it does on the host is to read what the call can pass."""
    reading = [reading_expression(item.nodes, c) for c in item.causes if not c.changed]
    return bool(reading) and all(
        isinstance(part, ast.Subscript | ast.Call) and not Uses([part]).reads & inside
        for part in reading
    )


def _union(lines: Iterable[SeenLine], name: str) -> frozenset[str]:
    return frozenset[str]().union(*(getattr(line, name) for line in lines))


def _everywhere(labels: Iterable[str], seen: Observation) -> frozenset[str]:
    """With the names from which what was changed can also be reached."""
    return frozenset(labels).union(*(seen.names_of.get(label, ()) for label in labels))


def _own(nodes: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """All in statements, but for functions, and for what leaves only a loop in them."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield node
        children = ast.iter_child_nodes(node)
        if isinstance(node, LOOPS):
            inner = (n for n in _own(children) if not isinstance(n, ast.Break | ast.Continue))
            yield from inner
        else:
            yield from _own(children)


def related(label: str, names: Iterable[str]) -> bool:
    """Whether one of the names is what the label names, a part of it, or what holds it."""
    return any(
        label == name or label.startswith(f"{name}.") or name.startswith(f"{label}.")
        for name in names
    )


def sort_items(items: list[Item], seen: Observation, *, moves: bool = True) -> None:
    """Give each its role. `moves`: what only binds names goes before or behind, if it can. Raises
    RefusedError."""
    for item in items:
        if suspends := next((n for n in _own(item.nodes) if isinstance(n, _SUSPENDS)), None):
            raise RefusedError("leaves_step", suspends, ast.unparse(suspends)[:80])
        reads = item.host_reads or any(seen.names.get(n) == "changing" for n in item.uses.binds)
        device = item.operations and not (reads or item.values or item.fills)
        stays = not moves and item.ran and item.is_inert
        item.role = "core" if item.calls or device or stays else "behind"
    _keep_functions(items)
    while (joining := _arrange(items)) is not None:
        joining.role = "core"
    for item in items:
        if item.role == "core":
            _require_replayable(item)


def _keep_functions(items: list[Item]) -> None:
    """A function that the step calls is made in it."""
    for item in items:
        makes = all(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in item.nodes)
        core = [other for other in items if other.role == "core"]
        if makes and any(item.uses.binds & other.uses.reads for other in core):
            item.role = "core"


def _arrange(items: list[Item]) -> Item | None:
    """Put the host's statements on both sides, in their order; the result has to join the core."""
    core = [i for i, item in enumerate(items) if item.role == "core"]
    host = [i for i, item in enumerate(items) if item.role != "core"]
    late = [i for i in host if i < core[0] or _against(items, core, i, before=False)]
    last = max(late, default=-1)
    stuck = [i for i in host if i > last and _against(items, core, i, before=True)]
    free = [i for i in host if last < i < min(stuck, default=len(items))]
    border = min((last, *free), key=lambda i: (sum(_crossed(items, core, j, i) for j in host), i))
    for i in host:
        items[i].role = "before" if i <= border else "behind"
        if _against(items, core, i, before=i <= border):
            return _joining(items[i], items[border])
    return None


def _against(items: list[Item], core: list[int], at: int, *, before: bool) -> bool:
    """Whether a statement of the host cannot go to one side of the call."""
    crossed = [items[j] for j in core if (j < at) == before]
    return bool(items[at].jumps and crossed) or any(conflict(items[at], c) for c in crossed)


def _crossed(items: list[Item], core: list[int], at: int, border: int) -> int:
    """The operations that a statement of the host crosses."""
    return sum(items[j].operations for j in core if (j < at) == (at <= border))


def _joining(item: Item, other: Item) -> Item:
    """One of two host statements that cannot be on the same side of the call, if it may stay."""
    for choice in (item, other):
        if (choice.is_inert or choice.selects) and choice.role != "core":
            return choice
    reason = "host_read" if item.host_reads else "host_work"
    raise item.refused("leaves_step" if item.jumps else reason)


def conflict(host: Item, core: Item) -> str | None:
    """A name for which the two cannot change places."""
    bound = host.uses.binds & (core.reads | core.uses.binds) | core.uses.binds & host.reads
    if bound:
        return min(bound)
    for label in host.changes:
        if _touches(label, core) or (label == _RATES and "step" in core.calls):
            return label
    return next((label for label in core.changes if _touches(label, host)), None)


def _touches(label: str, item: Item) -> bool:
    """Whether an item reads what a label names, maybe by another name."""
    attribute = label.partition(".")[2] and label.rpartition(".")[2]
    return related(label, item.reads) or attribute in item.attributes


def _require_replayable(item: Item) -> None:
    inside = {cause.changed for cause in item.causes if cause.changed and item.calls_for(cause)}
    inside |= {label for label in item.values if label.startswith(RANDOM)}
    if item.values & (item.uses.reads | inside) or (item.values and not item.calls):
        raise item.refused("host_work")
    if len(item.nodes) > 1 and item.values:  # of which only one may be a call of the step
        raise item.refused("shared_line")
    if item.jumps and not isinstance(item.nodes[0], ast.Return):
        raise item.refused("leaves_step")


def begun(region: Region, seen: Observation, owner: str | None) -> int:
    """The first statement of the step: before its calls, also what ends the graph of the step
    before, as `hidden = hidden.detach()`."""
    graphs = {name for name, holds in seen.names.items() if holds == "graph"}
    graphs &= Uses(region.statements, owner).exposed
    before = [Uses([s], owner) for s in region.block.statements[: region.first]]
    ends = (
        at for at, uses in enumerate(before) if uses.binds and uses.binds <= uses.reads & graphs
    )
    return min(ends, default=region.first)


def extended(region: Region, others: Marks, seen: Observation, owner: str | None) -> int:
    """The last statement of the step: behind its calls, also what updates tensors in place, and
    what names nothing but the step's own objects (`scaler.update()`)."""
    items = items_of(region, seen, owner)
    known = {name for item in items for name in item.reads | item.uses.binds}
    last, statements = region.last, region.block.statements
    for index in range(region.last + 1, len(statements)):
        more = Region(region.source, region.block, index, index, others, region.covered, True)
        [item] = items_of(more, seen, owner)
        in_place = item.operations and not (item.fills or item.uses.binds - item.uses.reads)
        own = isinstance(item.nodes[0], ast.Expr) and item.uses.reads <= known
        if item.calls or item.host_reads or item.values or not item.ran or not (in_place or own):
            break
        last = index
    return last
