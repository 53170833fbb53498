"""Statements of which the step computes one value and the host does the rest.

`losses.append(model(x).item())` becomes `output = model(x)` in the step and `losses.append(
output.item())` behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launchscope.adopt.definitions import LOGGING
from launchscope.adopt.effects import HOST_READS, Effects
from launchscope.adopt.memory import viewed
from launchscope.adopt.names import COMPREHENSIONS, Names, Uses, own_name
from launchscope.python_source import last_name

# Functions and methods that only look at sizes, or detach.
PLAIN = frozenset(("size", "dim", "numel", "len", "detach", "detach_", "min", "max"))


def can_split(
    node: ast.stmt, effects: Effects, problem: set[str], made: set[str], owner: str | None
) -> bool:
    """Whether the host only takes one value in a statement that the step can compute: `norm =
    clip_grad_norm_(...).item()`, `meter.update(accuracy(output, y), len(y))`.

    `problem` are the names for which it cannot move behind the call, `made` those that the step
    binds in front of it."""
    value = gpu_value(node)
    if value is None or value is getattr(node, "value", None):
        return False
    if effects.read is None and not (_keeps_given(node) and made & Uses([value]).reads):
        return False
    if viewed(value, owner) is not None:  # computed in the step, it would show later changes
        return False
    left = reads_beside(node, value, owner) | effects.reads_behind
    left |= effects.changes_behind  # which the step reads before it in the patch
    return isinstance(node, ast.Assign | ast.Expr) and not left & problem


def _keeps_given(node: ast.stmt) -> bool:
    """`meter.update(value, n)`, `history.append(value)`."""
    call = getattr(node, "value", None)
    kept = LOGGING | {"update"}
    return (
        isinstance(node, ast.Expr) and isinstance(call, ast.Call) and last_name(call.func) in kept
    )


def reads_beside(node: ast.stmt, value: ast.expr, owner: str | None) -> Names:
    """What a statement reads outside of a part of it."""
    inside = {id(inner) for inner in ast.walk(value)}
    outside = [n for n in ast.walk(node) if id(n) not in inside]
    return frozenset(name for n in outside if (name := own_name(n, owner)) is not None)


def gpu_value(node: ast.stmt) -> ast.expr | None:
    """The part of a statement's value that the GPU computes: the operand of its innermost read."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call):
        given = [*value.args, *(keyword.value for keyword in value.keywords)]
        computed = [one for one in given if _computes_some(one)] if len(given) > 1 else given
        value = computed[0] if len(computed) == 1 else None
    if value is None:
        return None
    best: ast.expr = value
    for inner in ast.walk(value):  # breadth first: the last one that matches is the innermost
        if isinstance(inner, ast.Call):
            operand: ast.expr | None = None
            if isinstance(inner.func, ast.Attribute) and inner.func.attr in HOST_READS:
                operand = inner.func.value
            elif isinstance(inner.func, ast.Name) and inner.func.id in ("float", "int", "str"):
                operand = inner.args[0] if inner.args else None
            if operand is not None and any(isinstance(n, ast.Call) for n in ast.walk(operand)):
                best = operand
    own = [n for n in ast.walk(value) if isinstance(n, COMPREHENSIONS)]
    if {n for outer in own for n in Uses(outer.generators).binds} & Uses([best]).reads:
        return None  # one value in each round of a comprehension
    if any(n is best for part in _not_always(value) for n in ast.walk(part)):
        return None
    if any(getattr(n, "attr", "") in HOST_READS for n in ast.walk(best)):
        return None
    whole = any(n is best for n in ast.walk(value))
    return best if whole and any(isinstance(n, ast.Call) for n in ast.walk(best)) else None


def _computes_some(node: ast.expr) -> bool:
    """Whether it calls more than `x.size(0)`."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(last_name(call.func) not in PLAIN for call in calls)


def _not_always(value: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that a condition may leave out, or that run when they are
    called."""
    for inner in ast.walk(value):
        if isinstance(inner, ast.IfExp):
            yield from (inner.body, inner.orelse)
        elif isinstance(inner, ast.BoolOp):
            yield from inner.values[1:]
        elif isinstance(inner, ast.Lambda):
            yield inner.body
