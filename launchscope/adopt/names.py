"""Which names statements read and bind.

`self.x` is a name of its own where `self` is the owner: the first parameter of a method.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeAlias

Names: TypeAlias = frozenset[str]
NOTHING: Names = frozenset()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def own_name(node: ast.AST, owner: str | None) -> str | None:
    """The name of a variable, or `self.x`; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{owner}.{node.attr}" if node.value.id == owner else None
    return None


class Uses:
    """The names of statements or expressions, in the order in which these run.

    `exposed` are read before they are bound here, `needed` those of them that every run reads;
    `binds` are bound in some run, `bound` in every one.
    """

    def __init__(self, nodes: Sequence[ast.AST], owner: str | None = None):
        self.reads: set[str] = set()
        self.exposed: set[str] = set()
        self.needed: set[str] = set()
        self.binds: set[str] = set()
        self.bound: set[str] = set()
        self._owner, self._certain = owner, True
        for node in nodes:
            self._visit(node)

    def _read(self, name: str) -> None:
        self.reads.add(name)
        if name not in self.bound:
            self.exposed.add(name)
            if self._certain and name not in self.binds:
                self.needed.add(name)

    def _bind(self, name: str) -> None:
        self.binds.add(name)
        self.bound.add(name)

    def _visit(self, node: ast.AST) -> None:
        name = own_name(node, self._owner)
        if name is not None:
            context = node.ctx  # type: ignore[attr-defined]
            if isinstance(context, ast.Store):
                self._bind(name)
            else:  # `del x` fails without it
                self._read(name)
            if isinstance(context, ast.Del):
                self.bound.discard(name)
        elif isinstance(node, ast.AugAssign):
            self._visit(node.value)
            target = own_name(node.target, self._owner)
            if target is not None:
                self._read(target)
            self._visit(node.target)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._visit(node.value)
                for one in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._visit(one)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._visit(node.iter)
            self._branches([node.target, *node.body], [])
            self._branches(node.orelse, [])
        elif isinstance(node, ast.While):
            self._visit(node.test)
            self._branches(node.body, [])
            self._branches(node.orelse, [])
        elif isinstance(node, ast.If):
            self._visit(node.test)
            self._branches(node.body, node.orelse)
        elif isinstance(node, ast.Try):
            handlers = [handler.body for handler in node.handlers]
            for handler in node.handlers:
                if handler.name:
                    self.binds.add(handler.name)
            self._branches([*node.body, *node.orelse], *handlers)
            for statement in node.finalbody:
                self._visit(statement)
        elif isinstance(node, ast.Match):
            self._visit(node.subject)
            self._branches([], *([case] for case in node.cases))
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
            for free in sorted(free_names(node, self._owner)):
                self._read(free)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._bind(node.name)
        elif isinstance(node, ast.alias):
            self._bind((node.asname or node.name).partition(".")[0])
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child)
            if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                self._bind(node.name)

    def _branches(self, *branches: Sequence[ast.AST]) -> None:
        """What one branch binds is bound afterwards only if all that go on bind it."""
        before, certain = set(self.bound), self._certain
        after: list[set[str]] = []
        for branch in branches:
            self.bound = set(before)
            self._certain = certain and len(branches) == 1
            for node in branch:
                self._visit(node)
            if not (branch and isinstance(branch[-1], _LEAVES)):
                after.append(self.bound)
        self._certain = certain
        self.bound = set.intersection(*after) if after else before


def free_names(node: ast.AST, owner: str | None = None) -> Names:
    """What a function, a class or a comprehension reads of the scope around it."""
    if isinstance(node, COMPREHENSIONS):
        parts: list[ast.AST] = []
        for generator in node.generators:
            parts += [generator.iter, generator.target, *generator.ifs]
        parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return frozenset(Uses(parts, owner).exposed)
    if isinstance(node, ast.ClassDef):
        outside: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords]
        return frozenset(Uses([*outside, *node.body], owner).exposed)
    assert isinstance(node, FUNCTIONS)
    arguments = node.args
    defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    own = Uses(body, owner)
    declared = declared_outside(node)
    local = (parameters(node) | own.binds) - declared
    return frozenset(Uses([*defaults, *decorators], owner).exposed | (own.reads - local))


def parameters(function: ast.AST) -> Names:
    if not isinstance(function, FUNCTIONS):
        return NOTHING
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return frozenset(one.arg for one in every if one is not None)


def declared_outside(function: ast.AST) -> Names:
    """The names that a function declares `global` or `nonlocal`."""
    return frozenset(
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    )


def read_by_functions(body: Sequence[ast.stmt], owner: str | None) -> Names:
    """What the functions and classes that are defined in a scope read of it, at any time."""
    found: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, FUNCTIONS):
                found |= free_names(node, owner)
    return frozenset(found)


def blocks_of(node: ast.AST) -> list[list[ast.stmt]]:
    """The statement lists of a compound statement, in the order of the source."""
    found: list[list[ast.stmt]] = []
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                found.append(value)
            elif isinstance(value[0], ast.ExceptHandler | ast.match_case):
                found += [one.body for one in value]
    return found
