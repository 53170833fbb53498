"""Which of a step's statements work for the host: adding up a loss, keeping an output in a list,
printing, fetching the next batch. A replay does not run them, so they go behind it.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchscope.runner.source.inputs import (
    Edit,
    bound,
    edited,
    is_chain,
    loads,
    names_read,
    value_of,
)

__all__ = ["STATIC_OUT", "Behind", "behind_of", "carried", "prefetched"]

STATIC_OUT = "static_out"
# What brings a tensor to the host, by name of its method.
_TO_HOST = ("item", "tolist", "cpu", "numpy")
_NUMBERS = (bool, int, float, str)
# What tells a value to somebody: loggers, writers, progress bars.
_TELLS = (
    "add_scalar", "debug", "info", "log", "set_description", "set_postfix", "warning", "write",
)  # fmt: skip
_KEEPERS = (list, deque)


@dataclass
class Behind:
    """What goes behind the replay, and what stays of it in the step."""

    moved: list[ast.stmt] = field(default_factory=list)  # nothing of them stays
    split: dict[ast.stmt, ast.expr] = field(default_factory=dict)  # this is STATIC_OUT's value
    lines: list[str] = field(default_factory=list)  # in source order


def behind_of(
    torch: Any, text: str, statements: list[ast.stmt], names: dict[str, Any], inputs: set[str]
) -> Behind:
    """Looks at whole statements of the step, each on lines of its own, from the last one on.

    One goes behind if nothing that stays needs what it binds, and if what it reads is as it was
    once the step is over. `inputs` are names of the step's input tensors.
    """
    behind = Behind()
    lines = text.splitlines()
    later: list[ast.stmt] = []  # what stays of the statements after this one
    needed: set[str] = set()  # by these
    rebound: set[str] = set()  # by the same
    own = bound(statements) | inputs
    for statement in reversed(statements):
        reads, binds = set(names_read([statement])), bound([statement])
        if not binds & needed and _alone(statement, statements):
            line = _text(lines, statement, [])
            if (
                isinstance(statement, ast.Assign)
                and binds & inputs
                and not reads & bound(statements)
            ):
                behind.moved.append(statement)  # fetches the next batch
                behind.lines.insert(0, line)
                continue
            kept = _kept(statement, names)
            if _for_host(torch, statement, names) and _is_settled(
                statement, names, own - rebound, later
            ):
                behind.moved.append(statement)
                behind.lines.insert(0, _text(lines, statement, _copies(torch, statement, names)))
                continue
            one = kept is not None and statement.end_lineno == statement.lineno
            part = _on_device(kept) if one and kept is not None else None
            if part is not None and kept is not None and not behind.split and not _reads(part):
                copy = ".clone()" if part is kept else ""
                if copy == "" or _keeps_tensor(torch, statement, kept, names):
                    behind.split[statement] = part
                    behind.lines.insert(0, _put(line, statement, part, STATIC_OUT + copy))
        later.append(statement)
        needed |= reads
        rebound |= binds
    return behind


def prefetched(torch: Any, statements: Sequence[ast.AST], names: dict[str, Any]) -> set[str]:
    """Names of tensors that the step reads, and then fetches anew for the step after it."""
    own, early = bound(statements), set(carried(statements))
    found: set[str] = set()
    for node in (part for statement in statements for part in ast.walk(statement)):
        if isinstance(node, ast.Assign) and not set(names_read([node.value])) & own:
            found |= bound([node]) & early
    return {name for name in found if isinstance(names.get(name), torch.Tensor)}


def carried(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Names that these statements read and bind only after: a function of them has to say that
    they are not its own."""
    known: set[str] = set()
    early: dict[str, None] = {}
    for name, stored in (entry for node in nodes for entry in _evaluated(node)):
        if stored:
            known.add(name)
        elif name not in known:
            early[name] = None
    return tuple(name for name in early if name in known)


def _evaluated(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Names in the order in which they are read and bound; those of a comprehension are its own."""
    if isinstance(node, ast.Name):
        yield node.id, not loads(node)
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, False
    first = getattr(node, "value", None) or getattr(node, "iter", None)
    rest = [child for child in ast.iter_child_nodes(node) if child is not first]
    for child in ([first] if isinstance(first, ast.AST) else []) + rest:
        inner = isinstance(child, ast.comprehension)
        yield from (entry for entry in _evaluated(child) if not (inner and entry[1]))


def _alone(statement: ast.stmt, statements: list[ast.stmt]) -> bool:
    """Whether no other statement is on its lines."""
    lines = [(s.lineno, s.end_lineno or s.lineno) for s in statements if s is not statement]
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    return not any(a <= last and b >= first for a, b in lines)


def _text(lines: list[str], statement: ast.stmt, edits: list[Edit]) -> str:
    """The statement's lines as if it stood at the margin."""
    first, margin = statement.lineno, statement.col_offset
    found = edited(lines, edits)[first - 1 : statement.end_lineno]
    return "\n".join(line[margin:] if not line[:margin].strip() else line for line in found)


def _copies(torch: Any, statement: ast.stmt, names: dict[str, Any]) -> list[Edit]:
    """What a list keeps of a tensor that the next replay writes anew has to be a copy."""
    edits: list[Edit] = []
    for part in _parts(statement):
        kept = _kept(part, names)
        if kept is None or _reads(kept) or not _keeps_tensor(torch, part, kept, names):
            continue
        begin, end = kept.col_offset, kept.end_col_offset or 0
        braced = isinstance(kept, ast.BinOp | ast.UnaryOp | ast.Compare | ast.IfExp)
        edits.append((kept.lineno, begin, begin, "(" if braced else ""))
        edits.append((kept.end_lineno or 0, end, end, ").clone()" if braced else ".clone()"))
    return edits


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    """What an `if` chooses between; else the statement itself."""
    if not isinstance(statement, ast.If):
        return [statement]
    return [part for inner in (*statement.body, *statement.orelse) for part in _parts(inner)]


def _kept(statement: ast.stmt, names: dict[str, Any]) -> ast.expr | None:
    """ "loss" of "losses.append(loss)"."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr != "append" or len(call.args) != 1:
        return None
    return call.args[0] if isinstance(_plain(call.func.value, names), _KEEPERS) else None


def _plain(node: ast.expr, names: dict[str, Any]) -> Any:
    return value_of(node, names) if is_chain(node) else None


def _keeps_tensor(torch: Any, statement: ast.stmt, kept: ast.expr, names: dict[str, Any]) -> bool:
    """Whether what the list got last is a tensor; of an empty one, what it is to get."""
    call: Any = statement.value if isinstance(statement, ast.Expr) else None
    keeper = value_of(call.func.value, names)
    return isinstance(keeper[-1], torch.Tensor) if keeper else _is_tensor(torch, kept, names)


def _is_tensor(torch: Any, node: ast.expr, names: dict[str, Any]) -> bool:
    """Whether it plainly gives one: "loss.detach() / 2"."""
    if isinstance(node, ast.BinOp):
        return _is_tensor(torch, node.left, names) or _is_tensor(torch, node.right, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        same = node.func.attr in ("detach", "float", "mean", "sum")
        return same and _is_tensor(torch, node.func.value, names)
    return isinstance(_plain(node, names), torch.Tensor)


def _on_device(node: ast.expr) -> ast.expr:
    """ "model(x)" of "model(x).cpu()": what a graph can hold of it."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _TO_HOST:
            break
        node = node.func.value
    return node


def _reads(node: ast.AST) -> bool:
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in _TO_HOST for call in calls)


def _for_host(torch: Any, statement: ast.stmt, names: dict[str, Any]) -> bool:
    """Whether it serves the host: a sum or a list of its own, a print, a value that is read."""
    if isinstance(statement, ast.If):
        # There a number that starts anew belongs to what is told.
        return all(
            _for_host(torch, part, names) or isinstance(part, ast.Pass) or _counts(part, names)
            for part in _parts(statement)
        )
    if isinstance(statement, ast.AugAssign):
        value = _plain(_loaded(statement.target), names)
        sums = isinstance(statement.target, ast.Name) and isinstance(value, torch.Tensor)
        return sums or isinstance(value, int | float)
    if isinstance(statement, ast.Assign):
        return _reads(statement.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    printed = isinstance(call.func, ast.Name) and call.func.id == "print"
    told = isinstance(call.func, ast.Attribute) and call.func.attr in _TELLS
    return printed or told or _reads(call) or _kept(statement, names) is not None


def _counts(statement: ast.stmt, names: dict[str, Any]) -> bool:
    """Whether it sets a number or a text by such ones."""
    if not isinstance(statement, ast.Assign) or any(
        isinstance(part, ast.Call) for part in ast.walk(statement)
    ):
        return False
    return all(isinstance(_plain(_loaded(t), names), _NUMBERS) for t in statement.targets)


def _is_settled(
    statement: ast.stmt, names: dict[str, Any], own: set[str], later: Sequence[ast.stmt]
) -> bool:
    """Whether it reads only what the step bound, inputs and numbers, and changes none of them."""
    if isinstance(statement, ast.If):
        inside = own | bound([statement])
        test = ast.copy_location(ast.Assert(statement.test), statement)
        parts = (*statement.body, *statement.orelse)
        return _is_settled(test, names, own, later) and all(
            _is_settled(part, names, inside, later) for part in parts
        )
    changed: ast.expr | None = None
    if isinstance(statement, ast.AugAssign):
        changed = statement.target
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        changed = statement.value.func  # the list's own method, or print
    left: list[ast.AST] = [statement]
    while left:
        part = left.pop()
        if part is changed and not _reads(ast.Expr(part)):
            continue
        if isinstance(part, ast.Attribute) and part.attr == "grad":
            return False
        if isinstance(part, ast.Compare) and _asks_for_none(part):
            continue
        if isinstance(part, ast.Attribute | ast.Subscript) and _is_number(part, names, later):
            continue
        if isinstance(part, ast.Name) and loads(part) and part.id not in own:
            if part.id in names and not isinstance(names[part.id], _NUMBERS):
                return False
            if part.id not in names and not hasattr(builtins, part.id):
                return False
        left += ast.iter_child_nodes(part)
    return True


def _asks_for_none(test: ast.Compare) -> bool:
    """ "writer is not None": an object that is there stays."""
    one, *others = test.comparators
    none = isinstance(one, ast.Constant) and one.value is None and not others
    return none and isinstance(test.ops[0], ast.Is | ast.IsNot) and is_chain(test.left)


def _is_number(node: ast.expr, names: dict[str, Any], later: Sequence[ast.stmt]) -> bool:
    """Whether it is a number of some object, "args.every", that nothing later in the step sets."""
    if not is_chain(node) or not isinstance(value_of(node, names), _NUMBERS):
        return False
    text, every = ast.unparse(node), [part for s in later for part in ast.walk(s)]
    stored = {
        ast.unparse(part)
        for part in every
        if isinstance(part, ast.Attribute | ast.Subscript) and not loads(part)
    }
    callers = {
        ast.unparse(part.func.value)
        for part in every
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
    }
    return text not in stored and not any(
        text.startswith((f"{caller}.", f"{caller}[")) for caller in callers
    )


def _loaded(target: ast.expr) -> ast.expr:
    """What is stored into, as an expression that reads it."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _put(line: str, statement: ast.stmt, part: ast.expr, text: str) -> str:
    """The statement's line with `text` in place of a part of it."""
    encoded = line.encode()  # the tree counts bytes
    begin = part.col_offset - statement.col_offset
    end = (part.end_col_offset or 0) - statement.col_offset
    return (encoded[:begin] + text.encode() + encoded[end:]).decode()
