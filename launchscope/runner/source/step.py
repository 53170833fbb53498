"""Finds the person's own statements of a step: their text, the tensors they read, the names of
the optimizers. Needs the source file; every function answers None where it cannot tell.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from launchscope.model import StepSource
from launchscope.runner.source.host import STATIC_OUT, Behind, behind_of, carried, prefetched
from launchscope.runner.source.inputs import (
    Read,
    bound,
    changing,
    edited,
    inputs_of,
    is_chain,
    loads,
    names_read,
    substitutes,
    value_of,
)
from launchscope.runner.userlines import short_path

__all__ = ["step_source"]

_MOST_LINES = 80
_NUMBERS = (int, float, bool)
_LOOPS = (ast.For, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def step_source(
    torch: Any,
    frame: Any,
    file: str,
    lines: Iterable[int],
    is_input: Callable[[Any], bool],
    optimizers: Iterable[Any],
) -> StepSource | None:
    """The statements that cover `lines` of `file`, in the order of the work, and what they read.

    `frame` is inside the step's last call; the innermost frame of `file` around it gives the
    values of names. `is_input` says of a tensor whether the step reads it without making it.
    """
    while frame is not None and short_path(frame.f_code.co_filename) != file:
        frame = frame.f_back
    if frame is None:
        return None
    text = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    scope = _scope_of(tree, frame)
    lines = list(lines)
    names = {**frame.f_globals, **_locals_of(frame)}
    suite, first, last = _statements(scope, set(lines), names)
    if not suite:
        return None
    chosen = suite[first : last + 1]
    begin, end = chosen[0].lineno, chosen[-1].end_lineno or chosen[-1].lineno
    if end - begin >= _MOST_LINES:
        return None
    loop = _loop_around(scope, chosen[0])
    around = [loop if loop is not None else scope]
    changes, fresh = changing(torch, around, names), bound(around) - _made(chosen, bound(around))

    # The names of these have the next step's tensors by now.
    ahead = {id(names[name]) for name in prefetched(torch, chosen, names)}

    def reads_of(nodes: Sequence[ast.AST]) -> list[Read]:
        return inputs_of(
            torch, text, nodes, names, changes, fresh, lambda t: id(t) in ahead or is_input(t)
        )

    given = set(names_read(read.node for read in reads_of(chosen))) & changes
    behind = behind_of(torch, text, chosen, names, given)
    kept = [behind.split.get(s, s) for s in chosen if s not in behind.moved]
    early = carried(kept)
    fetched = tuple(n for n in names_read(r.node for r in reads_of(kept)) if n in bound(kept))
    reads = [r for r in reads_of(kept) if not set(names_read([r.node])) & set(fetched)]
    lines_of = text.splitlines()
    before, depth = _front(lines_of, loop, chosen[0])
    return StepSource(
        file=file,
        first_line=begin,
        last_line=end,
        code=_cut(lines_of, begin, end),
        static_code=_outer(scope, early) + _static_code(lines_of, chosen, reads, behind),
        before=before,
        loop=_header(lines_of, loop),
        inputs=tuple(dict.fromkeys(entry for read in reads for entry in read.inputs)),
        optimizers=tuple(_names_of(optimizers, names)),
        results=_results(scope, kept, early) + (STATIC_OUT,) * len(behind.split),
        frozen=_frozen(kept, reads, names, changes, fresh, early),
        depth=depth,
        rounds=_goes_back(chosen, lines),
        behind="\n".join(behind.lines),
        fetched=fetched,
        gathers="\n".join(dict.fromkeys(read.gathers for read in reads if read.gathers)),
        adapts="\n".join(dict.fromkeys(read.adapts for read in reads if read.adapts)),
        kept=tuple(dict.fromkeys(part for read in reads for part in read.kept)),
        unseen=tuple(dict.fromkeys(part for read in reads for part in read.unseen)),
    )


def _cut(lines: list[str], begin: int, end: int) -> str:
    return textwrap.dedent("\n".join(lines[begin - 1 : end]))


def _static_code(
    lines: list[str], chosen: list[ast.stmt], reads: list[Read], behind: Behind
) -> str:
    """The statements as a graph can hold them: with static names, without what goes behind."""
    edits = substitutes(reads)
    for statement, part in behind.split.items():
        line, end = statement.lineno, part.end_col_offset or 0
        edits.append((line, statement.col_offset, part.col_offset, f"{STATIC_OUT} = "))
        edits.append((line, end, statement.end_col_offset or end, ""))
    gone = {n for s in behind.moved for n in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    begin, end = chosen[0].lineno, chosen[-1].end_lineno or chosen[-1].lineno
    kept = [
        line
        for number, line in enumerate(edited(lines, edits), 1)
        if begin <= number <= end and number not in gone
    ]
    return _cut(kept, 1, len(kept))


def _outer(scope: ast.AST, early: tuple[str, ...]) -> str:
    """What a function of the statements has to say of names that are not its own."""
    word = "global" if isinstance(scope, ast.Module) else "nonlocal"
    return f"{word} {', '.join(early)}\n" if early else ""


def _locals_of(frame: Any) -> dict[str, Any]:
    """A function's local variables, read without a trace.

    Until Python 3.12 asking a frame for them leaves a dictionary with the frame, which would
    keep the script's old tensors alive for as long as the function runs: it is emptied again.
    """
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        frame.f_locals.clear()
    return found


def _scope_of(tree: ast.Module, frame: Any) -> ast.AST:
    """The function whose code the frame runs, or the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if node.name == frame.f_code.co_name and first == frame.f_code.co_firstlineno:
                return node
    return tree


def _statements(
    scope: ast.AST, lines: set[int], names: dict[str, Any]
) -> tuple[list[ast.stmt], int, int]:
    """The innermost suite that holds all of `lines` that lie in the scope, and which of its
    statements; clearing the gradients and a scaler's update next to them belong to them."""
    suite: list[ast.stmt] = getattr(scope, "body", [])
    # Lines of functions and classes beside the loop are not the loop's own; a closure in it is.
    lines = {line for line in lines if _holders(suite, {line}, scopes=False)}
    found: tuple[list[ast.stmt], int, int] = ([], 0, 0)
    while lines:
        holding = _holders(suite, lines)
        if not holding:
            return found
        found = (suite, holding[0], holding[-1])
        inner = _suites(suite[holding[0]], lines) if len(holding) == 1 else []
        deeper = [s for s in inner if _covers(s, lines)]
        if not deeper:
            break
        suite = deeper[0]
    suite, first, last = found
    while first > 0 and "zero_grad" in ast.unparse(suite[first - 1]):
        first -= 1
    while suite and last + 1 < len(suite) and _ends(suite[last + 1], names):
        last += 1
    return suite, first, last


def _ends(statement: ast.stmt, names: dict[str, Any]) -> bool:
    """Whether it belongs to the step that it follows. A scaler's update reads what its step has
    just found: behind a replay there is nothing to read, and it raises an error."""
    if "zero_grad" in ast.unparse(statement):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    if not isinstance(method, ast.Attribute) or method.attr != "update":
        return False
    scaler = value_of(method.value, names) if is_chain(method.value) else None
    return any(kind.__name__ == "GradScaler" for kind in type(scaler).__mro__)


def _holders(suite: list[ast.stmt], lines: set[int], scopes: bool = True) -> list[int]:
    """Which statements hold any of the lines; `scopes`: functions and classes count as well."""
    return [
        index
        for index, statement in enumerate(suite)
        if (scopes or not isinstance(statement, _SCOPES))
        and any(statement.lineno <= n <= (statement.end_lineno or n) for n in lines)
    ]


def _covers(suite: list[ast.stmt], lines: set[int]) -> bool:
    return all(_holders(suite, {line}) for line in lines)


def _suites(statement: ast.stmt, lines: set[int]) -> list[list[ast.stmt]]:
    """The suites in which a single statement may be looked into: of loops, and of a function's
    or a mark's frame, but not of a `with` of the step's own that it cannot do without."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        needed = any(
            word in ast.unparse(item.context_expr)
            for item in statement.items
            for word in ("autocast", "device")
        )
        opens = statement.body[0]
        own = not isinstance(opens, _LOOPS) and bool(_holders([opens], lines))
        return [] if needed and own else [statement.body]
    if isinstance(statement, ast.If | ast.Try | ast.For | ast.While):
        return [statement.body, statement.orelse]
    return []


def _loop_around(scope: ast.AST, statement: ast.stmt) -> ast.For | ast.While | None:
    found = None
    for node in ast.walk(scope):  # outer before inner
        last = getattr(node, "end_lineno", 0)
        if isinstance(node, _LOOPS) and node.lineno < statement.lineno <= last:
            found = node
    return found


def _front(lines: list[str], loop: ast.AST | None, statement: ast.stmt) -> tuple[str, int]:
    """What the loop runs before the statement, the heads of blocks around it included, and how
    many columns deeper than the loop's own statements it stands."""
    body: list[ast.stmt] = getattr(loop, "body", [])
    if not body or body[0].lineno >= statement.lineno:
        return "", 0
    around = [
        node
        for node in ast.walk(ast.Module(body, []))
        if isinstance(node, ast.stmt) and node.lineno < statement.lineno <= (node.end_lineno or 0)
    ]
    if not all(isinstance(node, ast.If | ast.With) for node in around):
        return "", 0  # a head of a block that cannot stand without its other half
    depth = _indent(lines[statement.lineno - 1]) - _indent(lines[body[0].lineno - 1])
    return _cut(lines, body[0].lineno, statement.lineno - 1).rstrip(), depth


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _goes_back(statements: list[ast.stmt], lines: list[int]) -> bool:
    """Whether the work came back to an earlier statement, as when gradients are accumulated."""
    order = [found[0] for line in lines if (found := _holders(statements, {line}))]
    return any(later < earlier for earlier, later in itertools.pairwise(order))


def _header(lines: list[str], loop: ast.For | ast.While | None) -> str | None:
    if loop is None:
        return None
    part = lines[loop.lineno - 1 : loop.body[0].lineno - 1]
    header = " ".join(line.split("#")[0].strip() for line in part).strip()
    return header if header.endswith(":") else None


def _names_of(optimizers: Iterable[Any], names: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Variable and class of each optimizer that a variable refers to."""
    for optimizer in optimizers:
        for name, value in names.items():
            if value is optimizer:
                yield name, type(optimizer).__name__
                break


def _results(scope: ast.AST, kept: Sequence[ast.AST], early: tuple[str, ...]) -> tuple[str, ...]:
    """Names that are the step's own and that lines outside it read; `loss` in any case."""
    inside = {id(part) for node in kept for part in ast.walk(node)}
    outside = {
        n.id
        for n in ast.walk(scope)
        if isinstance(n, ast.Name) and loads(n) and id(n) not in inside
    }
    ordered: dict[str, None] = {}
    for part in (part for node in kept for part in ast.walk(node)):
        name = part.id if isinstance(part, ast.Name) and not loads(part) else None
        if name is not None and name not in early and (name in outside or name == "loss"):
            ordered[name] = None
    return tuple(ordered)


def _made(statements: Sequence[ast.AST], own: set[str]) -> set[str]:
    """Names that these bind to what they make of names in `own`: of outputs, not of batches."""
    return {
        name
        for node in (part for statement in statements for part in ast.walk(statement))
        if isinstance(node, ast.Assign) and set(names_read([node.value])) & own
        for name in bound([node])
    }


def _frozen(
    kept: Sequence[ast.AST],
    reads: list[Read],
    names: dict[str, Any],
    changes: set[str],
    fresh: set[str],
    early: tuple[str, ...],
) -> tuple[str, ...]:
    """Numbers and truth values that the loop changes and that stay in the rewritten step."""
    replaced = {id(part) for r in reads if not r.constant for part in ast.walk(r.node)}
    used = {
        n.id: None
        for node in kept
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and loads(n) and id(n) not in replaced
    }
    own = bound(kept) - set(early)
    # A batch may hold numbers beside its tensors.
    of_batch = {
        ast.unparse(n): None
        for node in kept
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and is_chain(n) and isinstance(value_of(n, names), _NUMBERS)
        and not any(id(part) in replaced for part in ast.walk(n) if isinstance(part, ast.Name))
        and set(names_read([n])) & fresh - own
    }  # fmt: skip
    return tuple(
        n for n in used
        if n in changes and n not in own and isinstance(names.get(n), _NUMBERS)
    ) + tuple(of_batch)  # fmt: skip
