"""Which functions of a file run without being named: `next(it)` runs a generator, and `print(x)`
the `__str__` of x."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launchscope.adopt.names import FUNCTIONS, Names

_TO_TEXT = ("__str__", "__repr__", "__format__")
_SHOWING = ("print", "str", "repr", "format")
_MESSAGES = ("debug", "info", "warning", "error", "critical", "exception", "log")
_OF_LOGGING = ("Formatter", "Filter", "Handler", "LoggerAdapter")


def implied_calls(tree: ast.Module) -> dict[str, Names]:
    """By built-in function, or method of a logger: what of the file it calls. A formatted text
    counts as a call of `str`."""
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = {node.name for node in defined}
    texts = names.intersection(_TO_TEXT)
    writing = names & {"write", "flush"} if _replaces_output(tree) else set()
    of_logging = {
        part.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(_OF_LOGGING) for base in node.bases)
        for part in node.body
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("__")
    }
    next_ones = names & {"__next__"} | {node.name for node in defined if is_generator(node)}
    found = dict.fromkeys(_SHOWING, texts) | dict.fromkeys(_MESSAGES, texts | of_logging)
    found |= {"print": texts | writing, "next": next_ones}
    return {name: frozenset(called) for name, called in found.items() if called - {name}}


def is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own(function))


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What runs in a function, without those that are defined in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from _own(child)


def _replaces_output(tree: ast.Module) -> bool:
    """`sys.stdout = Tee("log.txt")`, `with redirect_stdout(tee):`."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
         and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Name | ast.Attribute)
            and ast.unparse(node).endswith(("redirect_stdout", "redirect_stderr")))
        for node in ast.walk(tree)
    )  # fmt: skip
