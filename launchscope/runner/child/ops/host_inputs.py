"""Finds the host tensors that the step's own lines copy to the device.

With a graph these copies go straight to the inputs' fixed addresses, so the projection of the
iteration has to know them. An argument's copy, `model(x.to(device))`, is over before the step
begins: only the source shows that it belongs to the step.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType

from launchscope.model import HostInput, TensorShape
from launchscope.runner.child.ops.source_code import names_in, parsed, scope_of
from launchscope.runner.child.plain_values import (
    attribute,
    computes_itself,
    parts_of,
    shape_of,
)
from launchscope.runner.child.source_lines import short_path
from launchscope.runner.child.torch_types import Torch, Value

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def host_inputs(
    torch: Torch, frame: FrameType | None, file: str, lines: Iterable[int]
) -> tuple[HostInput, ...] | None:
    """The host tensors behind `x.to(...)` and `x.cuda()` in the statements that cover `lines`.

    `frame` is inside the step's last call; the innermost frame of `file` around it gives the
    values of names. None if no statement of its own covers a line. Raises SyntaxError for a file
    that is no Python.
    """
    while frame is not None and short_path(frame.f_code.co_filename) != file:
        frame = frame.f_back
    if frame is None:
        return None
    tree = parsed(frame.f_code.co_filename)
    # Functions and classes beside the loop are not part of it; a closure inside it is.
    body = [node for node in scope_of(tree, frame.f_code).body if not isinstance(node, _SCOPES)]
    own = [line for line in lines if any(_covers(statement, line, line) for statement in body)]
    if not own:
        return None
    names = names_in(frame)
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
            for number, shape in enumerate(_host_tensors(torch, _value_of(torch, source, names))):
                found[ast.unparse(source), number] = HostInput(shape)
    return tuple(found.values())


def _covers(statement: ast.stmt, first: int, last: int) -> bool:
    return statement.lineno <= last and (statement.end_lineno or 0) >= first


def _moved(node: ast.AST) -> ast.expr | None:
    """The `x` of `x.to(device)` and `x.cuda()`: a name with attributes and subscripts."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    source = node.func.value
    named = isinstance(source, ast.Name | ast.Attribute | ast.Subscript)
    return source if named and node.func.attr in ("to", "cuda") else None


def _value_of(torch: Torch, node: ast.expr, names: dict[str, Value]) -> Value:
    """The expression's value as the step left it, found without running anything of the script.

    Of a subscript of a tensor on the host only its shape. None if the value is unknown.
    """
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(owner, name):
            return attribute(torch, _value_of(torch, owner, names), name)
        case ast.Tuple(parts):
            values = tuple(_value_of(torch, part, names) for part in parts)
            return None if any(value is None for value in values) else values
        case ast.UnaryOp(ast.USub(), operand):
            return _integer(operator.sub, 0, _value_of(torch, operand, names))
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            sides = (_value_of(torch, side, names) for side in (left, right))
            return _integer(_ARITHMETIC[type(op)], *sides)
        case ast.Subscript(owner, key):
            value, index = _value_of(torch, owner, names), _value_of(torch, key, names)
            shape = _host_shape(torch, value)
            return _item(value, index) if shape is None else _indexed(torch, shape, index)
    return None


def _item(value: Value, key: Value) -> Value:
    """What `value[key]` is for a list, a tuple or a dictionary."""
    if isinstance(value, dict) and isinstance(key, int | str):
        return value.get(key)
    inside = isinstance(value, list | tuple) and isinstance(key, int)
    return value[key] if inside and -len(value) <= key < len(value) else None


def _integer(function: Callable[[int, int], int], *sides: Value) -> int | None:
    if all(type(side) is int for side in sides):
        with contextlib.suppress(ZeroDivisionError):
            return function(*sides)
    return None


def _host_shape(torch: Torch, value: Value) -> TensorShape | None:
    """The shape of a tensor in the memory of the host."""
    if isinstance(value, TensorShape):
        return value
    if not isinstance(value, torch.Tensor) or computes_itself(torch, value):
        return None
    return shape_of(value) if value.device.type == "cpu" else None


def _indexed(torch: Torch, shape: TensorShape, index: Value) -> TensorShape | None:
    """The shape of `tensor[index]` for integers, and for one tensor of them."""
    dims = shape.dims
    if isinstance(index, torch.Tensor):
        rows = _host_shape(torch, index)
        if rows is None or not dims or not rows.dtype.startswith("int"):
            return None
        return replace(shape, dims=(*rows.dims, *dims[1:]))
    indices = index if type(index) is tuple else (index,)
    if len(indices) > len(dims) or any(type(one) is not int for one in indices):
        return None
    if any(not -size <= one < size for one, size in zip(indices, dims, strict=False)):
        return None
    return replace(shape, dims=dims[len(indices) :])


def _host_tensors(torch: Torch, value: Value) -> list[TensorShape]:
    """The shape of the value if it is a tensor, otherwise of those that a batch holds directly."""
    whole = isinstance(value, TensorShape | torch.Tensor)
    parts = (value,) if whole else () if isinstance(value, torch.nn.Module) else parts_of(value)
    shapes = (_host_shape(torch, part) for part in parts if whole or isinstance(part, torch.Tensor))
    return [shape for shape in shapes if shape is not None]
