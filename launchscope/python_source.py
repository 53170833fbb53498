"""Reads Python code that anybody may have written, without a word from the interpreter."""

from __future__ import annotations

import ast
import warnings


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a source. Raises what `ast.parse` does.

    The interpreter's warnings quote lines of the source as they are, control characters too, and
    whoever runs it has had them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def last_name(node: ast.AST) -> str:
    """`step` of `step` and of `self.optimizer.step`; empty for what has no name."""
    name: str = getattr(node, "attr", getattr(node, "id", ""))
    return name
