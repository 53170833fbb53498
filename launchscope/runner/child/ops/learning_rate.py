"""Finds where the loop around the step sets a learning rate, whether or not it does so just now.

Its source is followed into the functions of the person that it calls. Which ones these are is read
from the variables of the frames; nothing is called.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple

from launchscope.model import SourceLine
from launchscope.runner.child.ops.source_code import Scope, names_in, parsed, scope_of
from launchscope.runner.child.source_lines import is_persons, short_path
from launchscope.runner.child.torch_types import Value

_MOST_PARTS = 100
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_GROUP = re.compile(r"(\w*_)?(group|pg)")  # an argument that is one of an optimizer's groups


class _Part(NamedTuple):
    """Code that runs in the loop: some of a `scope`, and the variables that it knows."""

    node: ast.AST
    scope: Scope
    code: CodeType
    names: dict[str, Value]


def rate_set_at(frame: FrameType | None) -> SourceLine | None:
    """The first line that sets `lr` in a group of an optimizer, in the outermost loop of the person
    that `frame` runs in; None if there is none. Raises SyntaxError for a file that is no Python."""
    tree_of = functools.cache(parsed)
    parts = _running(frame, tree_of)
    seen = {part.code for part in parts}
    for part in parts:  # which grows
        line = _setting(part)
        if line is not None:
            return SourceLine(short_path(part.code.co_filename), line)
        for function, names in _called(part):
            code = function.__code__
            if code not in seen and is_persons(code.co_filename) and len(parts) < _MOST_PARTS:
                seen.add(code)
                scope = scope_of(tree_of(code.co_filename), code)
                parts.append(_Part(scope, scope, code, names))
    return None


def _running(frame: FrameType | None, tree_of: Callable[[str], ast.Module]) -> list[_Part]:
    """The outermost loop of the person around the line that runs, and the functions in it that
    led there."""
    frames = []
    while frame is not None:
        if is_persons(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    parts: list[_Part] = []
    for own in reversed(frames):
        scope = scope_of(tree_of(own.f_code.co_filename), own.f_code)
        node = scope if parts else _loop_around(scope, own.f_lineno or 0)
        if node is not None:
            parts.append(_Part(node, scope, own.f_code, names_in(own)))
    return parts


def _loop_around(scope: Scope, line: int) -> ast.AST | None:
    loops = (node for node in ast.walk(scope) if isinstance(node, _LOOPS))
    return next((loop for loop in loops if loop.lineno <= line <= (loop.end_lineno or 0)), None)


def _setting(part: _Part) -> int | None:
    """The line of `group["lr"] = ...`, for a name that is bound to one of `param_groups`."""
    groups = set()
    for node in ast.walk(part.scope):
        match node:
            case ast.arg(name) if _GROUP.fullmatch(name):
                groups.add(name)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if _is_of_groups(node.iter):
                bound = (name for name in ast.walk(node.target) if isinstance(name, ast.Name))
                groups |= {name.id for name in bound}
            case ast.Assign([ast.Name(name)], ast.Subscript(value)) if _is_of_groups(value):
                groups.add(name)
    for node in ast.walk(part.node):
        match node:
            case ast.Subscript(owner, ast.Constant("lr"), ast.Store()):
                if _is_of_groups(owner) or (isinstance(owner, ast.Name) and owner.id in groups):
                    return node.lineno
    return None


def _is_of_groups(node: ast.expr) -> bool:
    parts = ast.walk(node)
    return any(getattr(p, "attr", getattr(p, "id", None)) == "param_groups" for p in parts)


def _called(part: _Part) -> Iterator[tuple[FunctionType, dict[str, Value]]]:
    """The functions that the part calls, so far as they are known, with their variables."""
    for node in ast.walk(part.node):
        if isinstance(node, ast.Call):
            function = _value(node.func, part.names)
            if isinstance(function, FunctionType):
                names = dict(function.__globals__)
                if isinstance(node.func, ast.Attribute):
                    owner = _value(node.func.value, part.names)
                    names |= dict.fromkeys(function.__code__.co_varnames[:1], owner)
                yield function, names


def _value(node: ast.expr, names: dict[str, Value]) -> Value:
    """What a name, or an attribute of one, is, found without running anything; a method without
    its object. None if it is unknown."""
    match node:
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(owner, name):
            return inspect.getattr_static(_value(owner, names), name, None)
    return None
