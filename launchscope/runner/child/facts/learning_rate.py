"""Finds where the loop around the step sets a learning rate, whether or not it does so just now.

The loop's source is followed into the functions of the person that it calls, by their names; a
method counts if its class is used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from launchscope.model import SourceLine
from launchscope.python_source import last_name
from launchscope.runner.child.facts.source_lines import is_persons, short_path

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_GROUP = re.compile(r"(\w*_)?(group|pg)")  # an argument that is one of an optimizer's groups


class _Part(NamedTuple):
    """Code that runs in the loop: some of a scope."""

    file: str
    node: Any
    scope: ast.AST


def rate_set_at(frame: FrameType | None, trees: dict[str, ast.Module]) -> SourceLine | None:
    """The first line that sets `lr` in a group of an optimizer, in the outermost loop of the person
    that `frame` runs in; None if there is none. `trees` are those of the person's files."""
    frames = []
    while frame is not None:
        if is_persons(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    loops = (_loop_around(own, trees) for own in reversed(frames))
    parts = list(filter(None, [next(filter(None, loops), None)]))
    functions = list(_functions(trees))
    called = {own.f_code.co_name for own in frames[:-1]}
    for part in parts:  # which grows
        line = _setting(part)
        if line is not None:
            return SourceLine(short_path(part.file), line)
        called |= set(_called(part.node))
        parts += [one for one in functions if one.node.name in called and one not in parts]
    return None


def _loop_around(frame: FrameType, trees: dict[str, ast.Module]) -> _Part | None:
    file, line = frame.f_code.co_filename, frame.f_lineno or 0
    scope: ast.AST = trees.get(file, ast.Module([], []))
    for node in ast.walk(scope):
        if getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0):
            if isinstance(node, _LOOPS):
                return _Part(file, node, scope)
            scope = node if isinstance(node, _Function) else scope
    return None


def _functions(trees: dict[str, ast.Module]) -> Iterator[_Part]:
    """Those of modules, and the methods of classes that are used."""
    used = {name for tree in trees.values() for name in _called(tree)}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module) or (
                isinstance(node, ast.ClassDef) and node.name in used
            ):
                yield from (_Part(file, f, f) for f in node.body if isinstance(f, _Function))


def _called(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            yield last_name(part.func)


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
    return "param_groups" in map(last_name, ast.walk(node))
