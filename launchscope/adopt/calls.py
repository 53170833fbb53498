"""What calls of the functions of a file do at most, judged by all that those call."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from launchscope.adopt.definitions import FILLING, LOGGING, Imports
from launchscope.adopt.effects import HOST_READS
from launchscope.adopt.names import FUNCTIONS, Names

_SHOWING = frozenset((
    "print", "float", "int", "bool", "str", "repr", "format", "len", "round", "min", "max", "abs",
    "sum", "sorted", "list", "tuple", "dict", "set", "zip", "range", "enumerate", "isinstance",
    "any", "all", "reversed",
))  # fmt: skip
_METHODS = HOST_READS | frozenset((
    "format", "join", "strip", "ljust", "rjust", "center", "upper", "lower", "title", "replace",
    "detach", "mean", "sum", "min", "max", "float", "numel", "size", "dim", "items", "keys",
    "values", "get",
))  # fmt: skip
_DRAWING_NOTHING = _METHODS | LOGGING | FILLING | {"get_last_lr"}
_MODULES = ("math", "time")  # of which every function draws nothing, and changes nothing
# Special methods that reading, formatting and printing do not call. Any other one of the file may
# do anything there.
_SPECIAL = frozenset((
    "__init__", "__new__", "__post_init__", "__call__", "__len__", "__getitem__", "__iter__",
    "__next__", "__enter__", "__exit__", "__del__",
))  # fmt: skip
_CHANGING = (
    ast.Global, ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom, ast.Await, ast.Raise,
    ast.Assert, ast.Try, ast.With, ast.Import, ast.ImportFrom, ast.ClassDef,
)  # fmt: skip


@dataclass
class Calls:
    """Of a file."""

    tree: ast.Module
    known: Imports
    _functions: dict[str, list[ast.AST]] = field(default_factory=dict)
    _variables: set[str] = field(default_factory=set)  # that may hold anything

    def __post_init__(self) -> None:
        lambdas = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                self._functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef):
                self._variables.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._functions.setdefault(target.id, []).append(node.value)
                        lambdas.add(id(target))
            elif isinstance(node, ast.arg):
                self._variables.add(node.arg)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._variables |= {a.asname or a.name.partition(".")[0] for a in node.names}
        self._variables |= {
            node.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in lambdas
        }

    def draw_nothing(self, node: ast.AST) -> bool:
        """Whether no random number is drawn in a statement."""
        return self._all_are(node, _DRAWING_NOTHING, (), set())

    def only_show(self, node: ast.AST) -> bool:
        """Whether the functions of the file that a statement calls only read, format and print, and
        it calls nothing else that is unknown."""
        special = {n for n in self.known.functions if n.startswith("__") and n.endswith("__")}
        return special <= _SPECIAL and self._all_are(node, _METHODS, _CHANGING, set())

    def _all_are(
        self, node: ast.AST, methods: Names, never: tuple[type[ast.AST], ...], seen: set[str]
    ) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in self.known.properties:
                return False
            if not isinstance(inner, ast.Call):
                continue
            if any(k.arg in ("key", "file", "default", None) for k in inner.keywords):
                return False
            function = inner.func
            if isinstance(function, ast.Attribute):
                if ast.unparse(function.value) in _MODULES:
                    continue
                if function.attr not in methods - self.known.functions.keys():
                    return False
            elif not isinstance(function, ast.Name) or function.id in self._variables:
                return False
            elif function.id not in self._functions:
                if function.id not in _SHOWING:
                    return False
            elif function.id not in seen:
                seen.add(function.id)
                bodies = self._functions[function.id]
                if not all(self._are_of(body, methods, never, seen) for body in bodies):
                    return False
        return True

    def _are_of(
        self, function: ast.AST, methods: Names, never: tuple[type[ast.AST], ...], seen: set[str]
    ) -> bool:
        """Whether all calls in the body of a function are so, and it does nothing of `never`."""
        body: Iterable[ast.AST] = (
            [function.body] if isinstance(function, ast.Lambda) else function.body  # type: ignore[attr-defined]
        )
        for part in body:
            for inner in ast.walk(part):
                stores = isinstance(inner, ast.Attribute | ast.Subscript) and not isinstance(
                    inner.ctx, ast.Load
                )
                if never and (stores or isinstance(inner, never)):
                    return False
            if not self._all_are(part, methods, never, seen):
                return False
        return True


def defines(node: ast.AST) -> bool:
    """Whether a statement does nothing but to define a function."""
    if isinstance(node, ast.FunctionDef):
        given = [*node.decorator_list, *_defaults(node)]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        if not all(isinstance(target, ast.Name) for target in node.targets):
            return False
        given = _defaults(node.value)
    else:
        return False
    return not any(isinstance(n, ast.Call | ast.NamedExpr) for p in given for n in ast.walk(p))


def read_by_definition(node: ast.AST) -> list[ast.expr]:
    """What is read where a function is defined, not where it is called."""
    function = node.value if isinstance(node, ast.Assign) else node
    assert isinstance(function, FUNCTIONS)
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    return [*decorators, *_defaults(function)]


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    given = function.args
    return [d for d in (*given.defaults, *given.kw_defaults) if d is not None]
