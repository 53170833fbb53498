"""Finds the host tensors that the step's own lines copy to the device.

With a graph these copies go straight to the inputs' fixed addresses, so the projection of the
iteration has to know them. An argument's copy, `model(x.to(device))`, is over before the step
begins: only the source shows that it belongs to the step.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterable, Mapping
from types import FrameType

from launchscope.model import HostInput
from launchscope.runner.child.hooks.input_shapes import shape_of
from launchscope.runner.child.source_lines import short_path
from launchscope.runner.child.torch_types import Tensor, Torch, Value

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Expressions that can be evaluated again without any effect. A slice is a view, not the input.
_PLAIN = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Tuple, ast.Attribute,
    ast.expr_context, ast.operator, ast.unaryop,
)  # fmt: skip


def host_inputs(
    torch: Torch, frame: FrameType | None, file: str, lines: Iterable[int]
) -> tuple[HostInput, ...] | None:
    """The host tensors behind `x.to(...)` and `x.cuda()` in the statements that cover `lines`.

    `frame` is inside the step's last call; the innermost frame of `file` around it gives the
    values of names. None if the source is unknown or no statement of its own covers a line.
    """
    while frame is not None and short_path(frame.f_code.co_filename) != file:
        frame = frame.f_back
    if frame is None:
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    # Functions and classes beside the loop are not part of it; a closure inside it is.
    body = [node for node in _scope_of(tree, frame).body if not isinstance(node, _SCOPES)]
    own = [line for line in lines if any(_covers(statement, line, line) for statement in body)]
    if not own:
        return None
    names = {**frame.f_globals, **_locals_of(frame)}
    found: dict[tuple[str, int], HostInput] = {}
    parts = (node for statement in body for node in ast.walk(statement))
    simple = [node for node in parts if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    for statement in simple:
        if not _covers(statement, min(own), max(own)):
            continue
        for node in ast.walk(statement):
            source = _moved(node)
            if source is None:
                continue
            for number, tensor in enumerate(_tensors(torch, _value_of(source, names))):
                if tensor.device.type == "cpu":
                    found[ast.unparse(source), number] = HostInput(
                        expression=ast.unparse(node),
                        tensor=shape_of(tensor),
                    )
    return tuple(found.values())


def _scope_of(
    tree: ast.Module, frame: FrameType
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Module:
    """The function whose code the frame runs, or the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if node.name == frame.f_code.co_name and first == frame.f_code.co_firstlineno:
                return node
    return tree


def _covers(statement: ast.stmt, first: int, last: int) -> bool:
    return statement.lineno <= last and (statement.end_lineno or 0) >= first


def _locals_of(frame: FrameType) -> dict[str, Value]:
    """A function's local variables.

    Up to Python 3.12, reading them leaves a dictionary with the frame that would keep the
    script's old tensors alive as long as the function runs, so it is emptied again.
    """
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        frame.f_locals.clear()
    return found


def _moved(node: ast.AST) -> ast.expr | None:
    """The `x` of `x.to(device)` and `x.cuda()`: a name with attributes and subscripts."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    source = node.func.value
    named = isinstance(source, ast.Name | ast.Attribute | ast.Subscript)
    plain = named and all(isinstance(part, _PLAIN) for part in ast.walk(source))
    return source if plain and node.func.attr in ("to", "cuda") else None


def _value_of(node: ast.expr, names: dict[str, Value]) -> Value:
    """The expression's value as the step left it; None if evaluating it raises an error."""
    try:
        return eval(compile(ast.Expression(node), "<step>", "eval"), {"__builtins__": {}}, names)
    except Exception:  # the script's own classes may raise anything
        return None


def _tensors(torch: Torch, value: Value) -> list[Tensor]:
    """The value if it is a tensor, otherwise the tensors that a batch holds directly."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, torch.nn.Module):
        return []
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        value = getattr(value, "__dict__", {}).values()
    return [part for part in value if isinstance(part, torch.Tensor)]
