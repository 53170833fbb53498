"""Reads the person's source: its trees, and the names that its frames know."""

from __future__ import annotations

import ast
import inspect
import sys
import warnings
from types import CodeType, FrameType
from typing import TypeAlias

from launchscope.runner.child.source_lines import source_of
from launchscope.runner.child.torch_types import Value

Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
_READS_LOCALS = frozenset({"locals", "vars", "eval", "exec", "f_locals"})


def parsed(filename: str) -> ast.Module:
    """The tree of a source file. Raises SyntaxError for one that is no Python."""
    with warnings.catch_warnings():  # the script has had the warnings about its source
        warnings.simplefilter("ignore")
        return ast.parse("".join(source_of(filename)))


def scope_of(tree: ast.Module, code: CodeType) -> Scope:
    """The function that was compiled to this code, or the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if node.name == code.co_name and first == code.co_firstlineno:
                return node
    return tree


def names_in(frame: FrameType) -> dict[str, Value]:
    """The global and local variables of a frame.

    Up to Python 3.12, the locals of a function are one dictionary, the one that `locals()` gives.
    It is emptied again: it would keep the script's tensors alive as long as the function runs.
    """
    code, names = frame.f_code, dict(frame.f_globals)
    shared = bool(code.co_flags & inspect.CO_OPTIMIZED) and sys.version_info < (3, 13)
    if not shared or _READS_LOCALS.isdisjoint(code.co_names):
        held = frame.f_locals
        names.update(held)
        if shared:
            held.clear()
    return names
