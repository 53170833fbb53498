"""The statements that make up the step: which block holds them, and from where to where."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from launchscope.adopt.definitions import FILLING, Imports
from launchscope.adopt.effects import effects_of
from launchscope.adopt.names import Names, Uses, own_name, root_name
from launchscope.adopt.observe import ChangedError
from launchscope.adopt.patch import Covered
from launchscope.adopt.source import Anchor, Block, RefusedError, Source, Statement
from launchscope.model import StepCallKind as Call
from launchscope.python_source import last_name

LOOPS = (ast.For, ast.While, ast.AsyncFor)
_METHODS: dict[str, tuple[str, ...]] = {
    "zero_grad": ("zero_grad",),
    "backward": ("backward",),
    "step": ("step",),
}
_DETACHING = frozenset(("item", "tolist", "detach"))
_AUTOCAST = ("autocast", "amp", "ctx", "no_grad", "inference_mode", "precision")


@dataclass(frozen=True)
class Region:
    """`first` to `last` of the statements of `block`, inclusive. `marks` are the statements that
    make the calls of the step, with these; they may be deeper inside."""

    source: Source
    block: Block
    first: int
    last: int
    marks: dict[Statement, frozenset[Call]]
    covered: Covered
    repeats: bool  # its function is called again and again, by a loop of the person's
    inferring: frozenset[Statement] = frozenset()
    lists: Names = frozenset()  # of batches that were fetched before
    fetched: Names = frozenset()  # names that the step binds for itself alone
    callers: tuple[ast.Module, ...] = ()  # other files that call its function

    @property
    def statements(self) -> list[Statement]:
        return self.block.statements[self.first : self.last + 1]

    @property
    def files(self) -> tuple[ast.Module, ...]:
        return self.source.tree, *self.callers

    @property
    def function(self) -> Statement | None:
        return self.statements[0].function()

    @property
    def loops(self) -> list[Statement]:
        """Around it within its function, innermost first."""
        owners = (block.owner for block in self.statements[0].chain())
        return [s for s in owners if s is not None and isinstance(s.node, LOOPS)]

    def calls_in(self, statement: Statement) -> frozenset[Call]:
        return frozenset[Call]().union(*(self.marks.get(s, ()) for s in statement.walk()))


def marked_calls(
    source: Source, anchor: Anchor, known: Imports
) -> dict[Statement, frozenset[Call]]:
    """The statements at which the calls were made. Raises RefusedError."""
    found: dict[Statement, set[Call]] = {}
    for what, line in anchor.lines:
        if what == "inference":
            continue
        candidates = source.at(line, anchor.function)
        fitting = [s for s in candidates if _makes(s.node, what)]
        if len(candidates) == 1 and any(True for _ in own_calls(candidates[0].node)):
            fitting = candidates
        if what == "step" and len(fitting) > 1:
            fitting = [s for s in fitting if not _schedules(s.node, known)]
        if not fitting:  # of several on a line, one calls a function that makes it
            fitting = [s for s in candidates if _makes(s.node, "forward")]
        if not fitting:
            raise RefusedError("changed", line, what)
        for statement in fitting:
            found.setdefault(statement, set()).add(what)
    _refuse_hidden(found)
    return {statement: frozenset(calls) for statement, calls in found.items()}


def inferring(source: Source, anchor: Anchor) -> frozenset[Statement]:
    """The statements that run a forward without gradients."""
    found: set[Statement] = set()
    for what, line in anchor.lines:
        if what == "inference":
            found.update(source.at(line, anchor.function))
    return frozenset(found)


def _schedules(node: ast.stmt, known: Imports) -> bool:
    return effects_of(node, frozenset(), frozenset(), known, None).schedule


def _refuse_hidden(found: dict[Statement, set[Call]]) -> None:
    """One statement that makes the whole step: code of a library, or in a string, or a closure."""
    calls = set[Call]().union(*found.values())
    statement = next(iter(found))
    hidden = "step" in calls and not calls & {"backward"}
    whole = len(found) == 1 and {"backward", "step"} <= calls and not statement.blocks
    if not (hidden or whole):
        return
    for call in own_calls(statement.node):
        name = last_name(call.func)
        if name in ("exec", "eval", "run_path", "run_module"):
            raise RefusedError("no_source", statement.node, name)
        if name == "step" and (call.args or call.keywords):
            raise RefusedError("closure", statement.node, name)
    raise RefusedError("installed", statement.node)


def own_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """What a statement itself calls, without the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from (inner for inner in ast.walk(child) if isinstance(inner, ast.Call))


def _makes(node: ast.stmt, what: Call) -> bool:
    methods = {c.func.attr for c in own_calls(node) if isinstance(c.func, ast.Attribute)}
    wanted = _METHODS.get(what)
    if wanted is None:  # a forward is any call
        known = {name for names in _METHODS.values() for name in names}
        return any(getattr(c.func, "attr", "") not in known for c in own_calls(node))
    return any(name in methods for name in wanted)


def callers(
    anchor: Anchor, read: Callable[[Path], Source]
) -> Iterator[tuple[Source, list[Statement]]]:
    """The files of the person's whose functions call that of the step, and where."""
    for file, line, function in anchor.callers:
        with suppress(RefusedError, ChangedError, OSError):
            source = read(Path(file))
            yield source, source.at(line, function)


def repeats(calling: Iterable[Statement]) -> bool:
    """Whether one of these is in a loop."""
    blocks = (block.owner for statement in calling for block in statement.chain())
    return any(owner is not None and isinstance(owner.node, LOOPS) for owner in blocks)


def regions(
    source: Source, marks: dict[Statement, frozenset[Call]], again: bool
) -> Iterator[Region]:
    """What may be moved into one function: the whole step first, then forward and backward."""
    calls = calls_of(marks)
    whole = _region(source, marks, "step" if "step" in calls else "forward_backward", again)
    if "backward" not in calls:
        yield replace(whole, covered="forward")
        return
    yield whole
    core = {s: c for s, c in marks.items() if c & {"forward", "backward"}}
    if core and len(core) < len(marks):
        yield _region(source, core, "forward_backward", again, marks)


def parts(region: Region, line: int | None) -> Iterator[Region]:
    """What is left of a region on the two sides of a line, where it still holds a backward."""
    if line is None:
        return
    left = {s: c for s, c in region.marks.items() if _end(s) < line}
    while left and list(left.values())[-1] == {"zero_grad"}:  # that of the other side
        left.popitem()
    for side in (left, {s: c for s, c in region.marks.items() if s.node.lineno > line}):
        calls = calls_of(side)
        rest = [s.node for s in region.marks if s not in side]
        # A value that one side computes and the other one reads would still need its backward.
        kept = Uses([s.node for s in side])
        shared = (Uses(rest).exposed & kept.binds) | (kept.exposed & Uses(rest).binds)
        if shared:
            continue
        if {"forward", "backward"} <= calls and len(side) < len(region.marks):
            covered: Covered = "part" if "step" in calls else "forward_backward"
            found = _region(region.source, side, covered, region.repeats)
            if not _needs_graph_of(found, region):
                yield replace(found, inferring=region.inferring, callers=region.callers)


def _needs_graph_of(part: Region, whole: Region) -> bool:
    """Whether a part computes with what a forward gave that is not in it: its backward would need
    that forward, and what is done to the parameters between the two would spoil it."""
    owner = whole.source.owner_of(whole.function)
    first = part.statements[0].node
    computed: set[str] = set()
    for statement in (inner for top in whole.statements for inner in top.walk()):
        if statement.blocks or statement.node.lineno >= first.lineno:
            continue
        forward = "forward" in whole.marks.get(statement, ())
        filled = _filled_by(statement.node, owner)
        if forward or computed & _kept_reads(statement.node, owner):
            computed |= filled
        else:
            computed -= filled & Uses([statement.node], owner).bound
    read = {name for s in part.statements for inner in s.walk()
            for name in _kept_reads(inner.node, owner)}  # fmt: skip
    exposed = Uses([s.node for s in part.statements], owner).exposed
    return bool(computed & read & exposed)


def _kept_reads(node: ast.stmt, owner: str | None) -> Names:
    """The names that a statement reads, but for values on the host and detached ones."""
    apart = {
        id(part)
        for call in own_calls(node)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _DETACHING
        for part in ast.walk(call.func.value)
    }
    parts = [n for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)
             for n in ast.walk(child) if id(n) not in apart]  # fmt: skip
    names = (
        own_name(n, owner) for n in parts if not isinstance(getattr(n, "ctx", None), ast.Store)
    )
    return frozenset(name for name in names if name is not None)


def _filled_by(node: ast.stmt, owner: str | None) -> Names:
    """The variables that a statement binds, or whose objects it stores into or fills."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        parts = [p for t in node.targets for p in getattr(t, "elts", [t])]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        parts = [node.target]
    elif isinstance(node, ast.Expr) and getattr(node.value, "func", None) is not None:
        function = node.value.func  # type: ignore[attr-defined]
        parts = [function] if getattr(function, "attr", "") in FILLING else []
    return frozenset(name for part in parts if (name := root_name(part, owner)) is not None)


def _end(statement: Statement) -> int:
    return statement.node.end_lineno or statement.node.lineno


def _region(
    source: Source,
    marks: dict[Statement, frozenset[Call]],
    covered: Covered,
    again: bool,
    more: dict[Statement, frozenset[Call]] | None = None,
) -> Region:
    """The smallest block that holds all of `marks`, and of `more` what is in that block itself."""
    chains = [statement.chain() for statement in marks]
    common = [block for block in chains[0] if all(block in chain for chain in chains)]
    if not common:
        raise RefusedError("two_functions", next(iter(marks)).node)
    block = common[0]
    while block.is_elif or _is_lifted(block):
        assert block.owner is not None
        block = block.owner.block
    indices = [block.statements.index(_top(block, statement)) for statement in marks]
    first, last = min(indices), max(indices)
    for statement, calls in (more or {}).items():
        if statement.block is block and calls == {"zero_grad"}:
            index = block.statements.index(statement)
            if index < last:
                first = min(first, index)
                marks = {**marks, statement: calls}
    extended = _extended(block, last, marks, first)
    by_hand = "step" not in calls_of(marks) and _updates_by_hand(block.statements[extended].node)
    if by_hand and covered == "forward_backward":
        covered = "step"
    return Region(source, block, first, extended, marks, covered, again)


def calls_of(marks: dict[Statement, frozenset[Call]]) -> frozenset[Call]:
    return frozenset[Call]().union(*marks.values())


def _is_lifted(block: Block) -> bool:
    """Whether it is the body of a `with` that belongs to the step, as autocast does."""
    owner = block.owner
    if owner is None or not isinstance(owner.node, ast.With):
        return False
    if any(isinstance(s.node, LOOPS) for s in block.statements):
        return False
    text = " ".join(ast.unparse(item.context_expr).lower() for item in owner.node.items)
    in_loop = any(b.owner and isinstance(b.owner.node, LOOPS) for b in owner.chain())
    return in_loop and any(word in text for word in _AUTOCAST)


def _top(block: Block, statement: Statement) -> Statement:
    """The statement of the block that is, or holds, this one."""
    return next(s for s in (statement, *statement.around()) if s.block is block)


def _extended(block: Block, last: int, marks: dict[Statement, frozenset[Call]], first: int) -> int:
    """Further by what makes the step whole: the scaler's update, an update written by hand."""
    calls = calls_of(marks)
    scalers = _receivers(block.statements[first : last + 1], "step")
    by_hand = "backward" in calls and "step" not in calls
    for index in range(last + 1, len(block.statements)):
        node = block.statements[index].node
        if (
            _receivers([block.statements[index]], "update") & scalers and isinstance(node, ast.Expr)
        ) or (by_hand and _updates_by_hand(node)):
            last = index
        elif not (by_hand and _clips(node)):  # belongs to the update behind it
            break
    return last


def _receivers(statements: list[Statement], method: str) -> Names:
    """The variables of which these statements call a method."""
    return frozenset(
        name
        for statement in statements
        for node in ast.walk(statement.node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == method and (name := ast.unparse(node.func.value))
    )


def _clips(node: ast.stmt) -> bool:
    """Whether it changes gradients alone: `clip_grad_norm_(model.parameters(), 0.25)`."""
    call = getattr(node, "value", None)
    return isinstance(call, ast.Call) and last_name(call.func).startswith("clip_grad_")


def _updates_by_hand(node: ast.stmt) -> bool:
    """`with torch.no_grad(): p -= lr * p.grad`, or a loop over parameters that does so."""
    if isinstance(node, ast.With):
        text = ast.unparse(node.items[0].context_expr)
        return "no_grad" in text and _names_grad(node)
    return (
        isinstance(node, ast.For) and _names_grad(node) and "parameters" in ast.unparse(node.iter)
    )


def _names_grad(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(node))


def counters(loop: Statement | None) -> Names:
    """Numbers that are other ones in each iteration of a loop."""
    if loop is None:
        return frozenset()
    found: set[str] = set()
    if isinstance(loop.node, ast.For):
        called = loop.node.iter.func if isinstance(loop.node.iter, ast.Call) else None
        name = getattr(called, "id", getattr(called, "attr", ""))
        if name in ("range", "trange", "count"):
            found |= Uses([loop.node.target]).binds
        elif name == "enumerate" and isinstance(loop.node.target, ast.Tuple):
            found |= Uses([loop.node.target.elts[0]]).binds
    for node in ast.walk(loop.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant):
            name = root_name(node.target, None)
            if isinstance(node.target, ast.Name) and type(node.value.value) is int and name:
                found.add(name)
    return frozenset(found)
