"""Where a script that is not run would make the calls of its steps, guessed from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from launchscope.adopt.patch import Place

_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NETWORK = (
    "model",
    "net",
    "gen",
    "disc",
    "critic",
    "encoder",
    "decoder",
    "actor",
    "policy",
    "gan",
    "compil",
)
_FORWARDS = ("d", "g", "criterion", "loss_fn", "self", "get_action_and_value")
What = Literal["zero_grad", "forward", "backward", "step"]


def guessed_steps(path: Path, text: str) -> Iterator[list[Place]]:
    """The places of each step: of all calls in the function, and the loop, of each backward()."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    seen: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _method(node) == "backward"):
            continue
        scope = _holder(node, parents)
        if scope in seen:
            continue
        seen.add(scope)
        calls = sorted(_calls(scope), key=lambda c: (c.lineno, c.col_offset))
        lines = dict.fromkeys((what, call.lineno) for call in calls if (what := _what(call)))
        function = next((p for p in _above(node, parents) if isinstance(p, _FUNCTIONS)), None)
        name = function.name if function else "<module>"
        caller = () if function is None else _caller(tree, name, parents, path)
        yield [Place(what, ((str(path), line, name), *caller)) for what, line in lines]


def _above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def _holder(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    """The innermost loop around a backward that has an optimizer's step, too, or the function."""
    last: ast.AST = node
    for above in _above(node, parents):
        last = above
        found = {_what(call) for call in _calls(above)}
        if isinstance(above, _FUNCTIONS) or (isinstance(above, _LOOPS) and "step" in found):
            break
    return last


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Without those of functions that are defined in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(child, ast.With) and _is_without_gradients(child):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _is_without_gradients(node: ast.With) -> bool:
    text = ast.unparse(node.items[0].context_expr)
    return "no_grad" in text or "inference_mode" in text


def _method(call: ast.Call) -> str:
    return getattr(call.func, "attr", "")


def _what(call: ast.Call) -> What | None:
    method = _method(call)
    text = ast.unparse(call.func).lower()
    if method == "step" and any(part in text for part in ("opt", "scaler", "solver", "adam")):
        return "step"
    if method == "backward":
        return "backward"
    if method == "zero_grad":
        return "zero_grad"
    name = text.rpartition(".")[2]
    if any(part in name for part in _NETWORK) or name in _FORWARDS:
        return "forward"
    return None


def _caller(
    tree: ast.Module, name: str, parents: dict[ast.AST, ast.AST], path: Path
) -> tuple[tuple[str, int, str], ...]:
    """A call of the function from a loop, if the file has one."""
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call) and name in (_method(node), getattr(node.func, "id", ""))
        ):
            continue
        above = list(_above(node, parents))
        inside = next((p.name for p in above if isinstance(p, _FUNCTIONS)), "<module>")
        if any(isinstance(p, _LOOPS) for p in above) and inside != name:
            return ((str(path), node.lineno, inside),)
    return ()
