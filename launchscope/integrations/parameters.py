"""Whether a method uses one of its parameters, as far as its code says."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import Any

from launchscope.python_source import parsed


def may_use(kind: type, function: Any, place: int) -> bool:
    """Whether code reads the parameter in this place, or may find it in `*args`. A method of `kind`
    that it only passes the parameter on to is asked as well. Raises OSError without a source."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount][place:]
    if not names:
        return bool(code.co_flags & inspect.CO_VARARGS)
    nodes = list(ast.walk(parsed(textwrap.dedent(inspect.getsource(code)))))
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == names[0]]
    passed = [
        (method, at)
        for call in nodes
        if isinstance(call, ast.Call) and (method := _own_method(kind, call, code)) is not None
        for at, given in enumerate(call.args, 1)
        if given in reads
    ]
    return len(passed) < len(reads) or any(may_use(kind, *each) for each in passed)


def _own_method(kind: type, call: ast.Call, code: types.CodeType) -> types.FunctionType | None:
    """The method of `self.method(...)` with arguments that are counted easily."""
    found = call.func
    if not (isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name)):
        return None
    method = inspect.getattr_static(kind, found.attr, None)
    is_own = found.value.id == code.co_varnames[0] and isinstance(method, types.FunctionType)
    starred = any(isinstance(given, ast.Starred) for given in call.args)
    return method if is_own and not starred else None
