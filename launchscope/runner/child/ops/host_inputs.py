"""Finds the host tensors that the step's own lines copy to the device.

With a graph these copies go straight to the inputs' fixed addresses, so the projection of the
iteration has to know them. An argument's copy, `model(x.to(device))`, is over before the step
begins: only the source shows that it belongs to the step.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType

from launchscope.model import HostInput, TensorShape
from launchscope.runner.child.ops.step_ops import filter_first
from launchscope.runner.child.plain_values import (
    attribute,
    computes_itself,
    element,
    is_a,
    is_tensor,
    parts_of,
    shape_of,
    tensor_field,
)
from launchscope.runner.child.source_lines import short_path, source_of
from launchscope.runner.child.torch_types import Torch, Value

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_READS_LOCALS = frozenset({"locals", "vars", "eval", "exec", "f_locals"})
_OWN_REFERENCES = 3  # of a frame's dictionary: the frame, a local name and an argument


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
    unmute = filter_first("ignore", "")  # the script has had the warnings about its source
    try:
        tree = ast.parse("".join(source_of(frame.f_code.co_filename)))
    finally:
        unmute()
    # Functions and classes beside the loop are not part of it; a closure inside it is.
    body = [node for node in _scope_of(tree, frame).body if not isinstance(node, _SCOPES)]
    own = [line for line in lines if any(_covers(statement, line, line) for statement in body)]
    if not own:
        return None
    names = _names_in(frame)
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


def _names_in(frame: FrameType) -> dict[str, Value]:
    """The global and local variables of a frame.

    Up to Python 3.12, reading those of a function renews the dictionary that `locals()` gives, so
    they stay unknown where the function may have asked for it. Otherwise it is emptied again: it
    would keep the script's old tensors alive as long as the function runs.
    """
    code, scopes = frame.f_code, [frame.f_globals]
    if not code.co_flags & inspect.CO_OPTIMIZED:
        scopes.append(frame.f_locals)  # of a module or a class, the mapping itself
    elif sys.version_info >= (3, 13):
        scopes.append(dict(frame.f_locals))
    elif _READS_LOCALS.isdisjoint(code.co_names):
        held = frame.f_locals
        scopes.append(dict(held))
        if sys.getrefcount(held) <= _OWN_REFERENCES:
            held.clear()
    entries = (entry for scope in scopes if is_a(scope, dict) for entry in dict.items(scope))
    return {name: value for name, value in entries if type(name) is str}


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
            return element(value, index) if shape is None else _indexed(torch, shape, index)
    return None


def _integer(function: Callable[[int, int], int], *sides: Value) -> int | None:
    if all(type(side) is int for side in sides):
        with contextlib.suppress(ZeroDivisionError):
            return function(*sides)
    return None


def _host_shape(torch: Torch, value: Value) -> TensorShape | None:
    """The shape of a tensor in the memory of the host."""
    if is_a(value, TensorShape):
        return value  # type: ignore[no-any-return]
    if not is_tensor(torch, value) or computes_itself(torch, value):
        return None
    return shape_of(value) if tensor_field(value, "device").type == "cpu" else None


def _indexed(torch: Torch, shape: TensorShape, index: Value) -> TensorShape | None:
    """The shape of `tensor[index]` for integers, and for one tensor of them."""
    dims = shape.dims
    if is_tensor(torch, index):
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
    whole = is_a(value, TensorShape) or is_tensor(torch, value)
    parts = (value,) if whole else () if is_a(value, torch.nn.Module) else parts_of(value)
    shapes = (_host_shape(torch, part) for part in parts if whole or is_tensor(torch, part))
    return [shape for shape in shapes if shape is not None]
