"""Tests of a step that a short run decides one way only, because they read settings that change in
a later epoch: in the runs that are compared, both versions take the other branch for some
steps. A loop has no round then."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from launchscope.adopt.names import FUNCTIONS
from launchscope.adopt.observation import SWITCHED, switch
from launchscope.adopt.source import Edit, Source
from launchscope.python_source import last_name

_MOST = 4  # each makes every run six steps longer, and a graph: `graphed` makes eight
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)
_EXITS = frozenset(("exit", "quit", "_exit", "abort"))
# How many of these a step makes tells where it ends, in both versions.
_OF_STEP = frozenset(("step", "backward", "manual_backward"))
# Of tests whose other branch fails: a tensor of another device, a process group that is not there.
_OF_MACHINE = ("cuda", "gpu", "device", "rank", "dist", "ddp", "world", "master", "main_process")
_LONG = ("eval", "valid", "test", "sample", "generate", "fit", "train", "run")
_OF_KIND = frozenset(("isinstance", "issubclass", "hasattr", "callable", "is_tensor"))


@dataclass(frozen=True)
class _Choice:
    """What an `if`, a conditional expression or a loop decides by: `parts` are tests, or what a
    loop goes through. `branches`: what it chooses between."""

    parts: tuple[ast.expr, ...]
    branches: tuple[Sequence[ast.AST], ...]
    loop: str = ""  # its header

    def codes(self) -> Iterator[tuple[str, ast.expr]]:
        for part in self.parts:
            yield self.loop or ast.unparse(part), part


def candidates(iteration: Sequence[ast.AST], first_line: int, last_line: int) -> tuple[str, ...]:
    """The tests and loops in the statements of an iteration that may be switched, by their code:
    those in the lines of the step, then those beside it that choose between what takes no time."""
    of_step: dict[str, None] = {}
    beside: dict[str, None] = {}
    fixed: set[str] = set()  # where another branch would leave the step
    hidden: set[int] = set()  # tests within such branches
    for choice in _choices(iteration):
        inside = first_line <= choice.parts[0].lineno <= last_line
        if not inside and id(choice.parts[0]) in hidden:
            continue
        short = not choice.loop and all(map(_is_short, choice.branches))
        fit = (inside or short) and not any(map(_leaves_step, choice.branches))
        for code, part in choice.codes():
            if not fit:
                fixed.add(code)
            elif _is_setting(part, code):
                (of_step if inside else beside)[code] = None
        # They may not be made for long: only those behind `else` are likely to be.
        unlikely = choice.branches if not fit else choice.branches[:1]
        hidden.update(id(c.parts[0]) for branch in unlikely for c in _choices(branch))
    found = {**of_step, **beside}
    return tuple(code for code in found if code not in fixed)[:_MOST]


def common(codes: Sequence[str], before: Iterable[ast.AST], after: Iterable[ast.AST]) -> list[str]:
    """Those that a version has as often as the version before, or more often."""
    had, has = (
        Counter(code for choice in _choices(nodes) for code, _ in choice.codes())
        for nodes in (before, after)
    )
    return [code for code in codes if 0 < had[code] <= has[code]]


def switched(source: Source, nodes: Iterable[ast.AST], codes: Sequence[str]) -> list[Edit]:
    """Changes by which each of these tests goes the other way, and each loop has no round, while
    the variable of its number is True, which is one of the module, as a setting is: `graphed` makes
    graphs for both. A dictionary then says that it was reached."""
    edits = []
    for choice in _choices(nodes):
        for code, part in choice.codes():
            if code in codes:
                begin, end = source.span(part)
                number = codes.index(code)
                flag = f"({switch(number)} and {SWITCHED}.setdefault({number}, True))"
                around = _around_loop(flag) if choice.loop else _around(part, code, flag)
                edits += [Edit(begin, begin, around[0]), Edit(end, end, around[1])]
    return edits


def _around_loop(flag: str) -> tuple[str, str]:
    return f"(() if {flag} else (", "))"


def _around(test: ast.expr, code: str, flag: str) -> tuple[str, str]:
    """What goes in front of a test and behind it. What is None stays so, as what is read of an
    object must not be read of None."""
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(None)]):
            return "((", f") and not {flag})"
        case ast.Compare(ops=[ast.Is()], comparators=[ast.Constant(None)]):
            return "((", f") or {flag})"
        case ast.Name() | ast.Attribute() if not _calls(test):
            return f"({code} is not None and (not (", f")) is {flag})"
    return "((not (", f")) is {flag})"


def _calls(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _is_setting(part: ast.expr, code: str) -> bool:
    """Whether the other branch may well run."""
    lower = code.lower()
    if any(word in lower for word in _OF_MACHINE) or isinstance(part, ast.Constant):
        return False
    if any(isinstance(node, ast.NamedExpr | ast.Await) for node in ast.walk(part)):
        return False
    if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.In | ast.NotIn):
        return _is_list(part.comparators[0])  # in others there may be no such key
    return not (isinstance(part, ast.Call) and last_name(part.func) in _OF_KIND)


def _is_list(value: ast.expr) -> bool:
    """Of constants: `step in (250, 500)`."""
    if not isinstance(value, ast.Tuple | ast.List | ast.Set):
        return False
    return all(isinstance(each, ast.Constant) for each in value.elts)


def _leaves_step(branch: Sequence[ast.AST]) -> bool:
    """Whether statements leave the step, or are a part of it that is counted."""
    for node in _own(branch):
        if isinstance(node, _LEAVING):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in _EXITS | _OF_STEP:
            return True
    return False


def _is_short(branch: Sequence[ast.AST]) -> bool:
    """Whether statements show or keep something: an evaluation may take minutes."""
    for node in _own(branch):
        if isinstance(node, ast.For | ast.While | ast.With):
            return False
        if isinstance(node, ast.Call):
            name = last_name(node.func).lower()
            if isinstance(node.func, ast.Name) and not hasattr(builtins, name):
                return False
            if any(word in name for word in _LONG):
                return False
    return True


def _choices(nodes: Iterable[ast.AST]) -> Iterator[_Choice]:
    """In the order of the code."""
    for node in _own(nodes):
        if isinstance(node, ast.If):
            yield _Choice(tuple(_parts_of(node.test)), (node.body, node.orelse))
        elif isinstance(node, ast.IfExp):
            yield _Choice(tuple(_parts_of(node.test)), ([node.body], [node.orelse]))
        elif isinstance(node, ast.For) and _may_be_empty(node.iter):
            header = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
            yield _Choice((node.iter,), (node.body, node.orelse), header)


def _may_be_empty(iterated: ast.expr) -> bool:
    """Not the parameters of a model, say."""
    named = isinstance(iterated, ast.Name | ast.Attribute)
    return named or (isinstance(iterated, ast.Call) and last_name(iterated.func) == "range")


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes and what is in them: no other functions, and no f-strings, in which older versions of
    Python do not say where a node is."""
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.JoinedStr)):
            waiting += list(ast.iter_child_nodes(node))[::-1]


def _parts_of(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a test of which `and`, `or` and `not` make it."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts_of(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts_of(test.operand)
    else:
        yield test


def body_of(source: Source, function: str) -> list[ast.AST]:
    """The statements of the function of this name; none where there is no such function."""
    named = (s.node for s in source.statements if isinstance(s.node, ast.FunctionDef))
    return next(([*node.body] for node in named if node.name == function), [])
