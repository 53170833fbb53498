"""Which functions of a file run without being named: `next(it)` runs a generator, and `print(x)`
the `__str__` of x."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launchscope.adopt.names import FUNCTIONS, NOTHING, Names

_TO_TEXT = ("__str__", "__repr__", "__format__")
_SHOWING = ("print", "str", "repr", "format")
_MESSAGES = ("debug", "info", "warning", "error", "critical", "exception", "log")
_OF_LOGGING = ("Formatter", "Filter", "Handler", "LoggerAdapter")
_MAKING = frozenset(("__init__", "__new__", "__post_init__"))
_BY_SYNTAX: tuple[tuple[tuple[type[ast.AST], ...], Names], ...] = (
    ((ast.Subscript,), frozenset(("__getitem__", "__setitem__", "__delitem__"))),
    ((ast.For, ast.comprehension, ast.Starred), frozenset(("__iter__", "__next__"))),
    ((ast.Attribute,), frozenset(("__getattr__", "__getattribute__", "__setattr__"))),
    ((ast.With,), frozenset(("__enter__", "__exit__"))),
    ((ast.Call,), frozenset(("__float__", "__int__", "__len__", "__bool__", "__index__"))),
    ((ast.If, ast.IfExp, ast.BoolOp), frozenset(("__bool__", "__len__"))),
)  # fmt: skip
_OTHERS = frozenset(("__call__", "__del__", *_TO_TEXT, *_MAKING)).union(
    *(names for _, names in _BY_SYNTAX)
)


def special_methods(node: ast.AST, functions: Names, making: Names) -> Names:
    """Those of the functions of a file that operators, indices, attributes, loops and contexts of a
    statement call, and that make objects of these classes."""
    special = {name for name in functions if name.startswith("__")}
    found: set[str] = set()
    for inner in ast.walk(node) if special else ():
        if isinstance(inner, ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Compare):
            found |= special - _OTHERS
        elif isinstance(inner, ast.Call) and getattr(inner.func, "id", "") in making:
            found |= special & _MAKING
        for kinds, names in _BY_SYNTAX:
            found |= special & names if isinstance(inner, kinds) else NOTHING
    return frozenset(found)


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
    found |= {"print": texts | writing, "next": next_ones, "send": next_ones}
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
    """`sys.stdout = Tee("log.txt")`, `with redirect_stdout(tee):`, `print(x, file=tee)`."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
         and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Name | ast.Attribute)
            and ast.unparse(node).endswith(("redirect_stdout", "redirect_stderr")))
        or (isinstance(node, ast.keyword) and node.arg == "file")
        for node in ast.walk(tree)
    )  # fmt: skip
