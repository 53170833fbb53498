"""Whether what a data loader gives may be on a GPU already, as far as the text of a file says."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launchscope.adopt.names import parameters, root_name
from launchscope.adopt.region import own_calls
from launchscope.adopt.source import Source, Statement
from launchscope.python_source import last_name

_DEFAULTS = frozenset(("set_default_device", "set_default_tensor_type"))
_MOVING = frozenset(("cuda", "type_as", "to_device"))
_COLLATE = 6  # the place of `collate_fn` among the arguments of a DataLoader


def may_be_on_gpu(source: Source, loader: ast.Call, made_in: Statement) -> bool:
    """Whether the data set of a DataLoader, or its `collate_fn`, leads to anything that is moved to
    a device, through the variables, functions and classes of the file."""
    if any(_sets_default(node) for node in ast.walk(source.tree)):
        return True
    given = [k.value for k in loader.keywords if k.arg in ("dataset", "collate_fn")]
    left: list[ast.AST] = [*loader.args[:1], *loader.args[_COLLATE : _COLLATE + 1], *given]
    scopes, seen = _scopes(source, made_in.function()), set[str]()
    while left:
        inner = list(ast.walk(left.pop()))
        if any(_moves(part) for part in inner):
            return True
        for name in {found for part in inner for found in _names(part)} - seen:
            seen.add(name)
            left += _definitions(source, name, made_in, scopes)
    return False


def _scopes(source: Source, function: Statement | None) -> list[Statement | None]:
    """The module, the function around the data loader, and those that call it."""
    found: list[Statement | None] = [None, function]
    for scope in found:
        if scope is not None:
            found += {s.function(): None for s, _ in _calls(source, scope)}.keys() - {*found}
    return found


def _calls(source: Source, function: Statement) -> Iterator[tuple[Statement, ast.Call]]:
    """Where the file calls a function."""
    called = function.node.name  # type: ignore[attr-defined]
    for statement in source.statements:
        for call in own_calls(statement.node):
            if last_name(call.func) == called:
                yield statement, call


def _names(node: ast.AST) -> Iterator[str]:
    """`data`; for `self.data` itself, and `.data`, which may be a method."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield f".{node.attr}"
        yield ast.unparse(node)


def _definitions(
    source: Source, name: str, made_in: Statement, scopes: list[Statement | None]
) -> Iterator[ast.AST]:
    """What a name stands for in one of the scopes, and what is put into it."""
    for statement in source.statements:
        node = statement.node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if name in (node.name, f".{node.name}"):
                yield node
            continue
        around = statement.function()
        if around not in scopes and "." not in name:
            continue
        if around is made_in.function() and node.lineno > made_in.node.lineno:
            continue
        if isinstance(node, ast.For) and _is_of(node.target, name):
            yield node.iter
        elif not statement.blocks:
            yield from _put_into(node, name)
    for scope in scopes:
        if scope is not None and name in parameters(scope.node):
            for _, call in _calls(source, scope):
                yield from (*call.args, *(k.value for k in call.keywords))


def _put_into(node: ast.stmt, name: str) -> list[ast.expr]:
    """The values of an assignment to a variable or a part of it, and of `rows.append(row)`."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [value] if value is not None and any(_is_of(t, name) for t in targets) else []
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call):
        return [value] if root_name(value.func, None) == name else []
    return []


def _is_of(target: ast.expr, name: str) -> bool:
    return any(name in _names(part) for part in ast.walk(target))


def _moves(node: ast.AST) -> bool:
    """Whether it may make a tensor on another device than the host."""
    if not isinstance(node, ast.Call):
        return False
    called = last_name(node.func)
    if called in _MOVING or ast.unparse(node.func).startswith("torch.cuda.Float"):
        return True
    chosen = [k.value for k in node.keywords if k.arg in ("device", "map_location")]
    if called == "to" and isinstance(node.func, ast.Attribute):
        chosen += node.args[:1]
    return not all(_is_on_host(value) for value in chosen)


def _is_on_host(value: ast.expr) -> bool:
    """`"cpu"`, `torch.device("cpu")`, or a type: `torch.float32`."""
    if isinstance(value, ast.Call) and last_name(value.func) == "device" and value.args:
        value = value.args[0]
    if isinstance(value, ast.Constant):
        return value.value in ("cpu", None)
    return isinstance(value, ast.Attribute) and root_name(value, None) == "torch"


def _sets_default(node: ast.AST) -> bool:
    if isinstance(node, ast.With):  # with torch.device("cuda"):
        contexts = [item.context_expr for item in node.items]
        return any(last_name(getattr(c, "func", c)) == "device" for c in contexts)
    return isinstance(node, ast.Call) and last_name(node.func) in _DEFAULTS
