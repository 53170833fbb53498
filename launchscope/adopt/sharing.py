"""Which variables of a file may stand for one object, or for objects of which one holds the other.

Two meters and the display that is made of them, a list and the dictionary that it is in, a
parameter and what a call passes for it. Only objects that the file can change count: those of its
own classes, and containers that it makes.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from launchscope.adopt.implied_calls import is_generator
from launchscope.adopt.names import FUNCTIONS, Names, root_name
from launchscope.python_source import last_name

_SELF = "self"
_CONTAINERS = frozenset((
    "list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter", "SimpleNamespace",
    "namedtuple", "partial",
))  # fmt: skip
# What they give holds nothing of what they get.
_VALUES = frozenset((
    "len", "sum", "float", "int", "str", "max", "min", "abs", "round", "range", "print", "bool",
    "any", "all", "id", "type", "repr", "format", "isinstance", "open", "item", "mean", "numel",
    "size",
))  # fmt: skip
# What iterates over what it gets, beside generators of the file.
_ITERATORS = frozenset((
    "iter", "enumerate", "zip", "cycle", "chain", "islice", "map", "filter", "reversed",
    "DataLoader", "BatchSampler",
))  # fmt: skip
_IN_PLACE = frozenset(("fill", "put", "sort", "partition", "resize", "itemset"))  # of an array
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def one_by_one(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The assignments that `a, b = c, d` makes."""
    if not isinstance(target, ast.Tuple | ast.List):
        return [(target, value)]
    given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    if len(given) != len(target.elts):
        given = [value] * len(target.elts)
    return list(zip(target.elts, given))


def own_lists(tree: ast.Module, modules: Names) -> Names:
    """The variables with a list that no other one holds: bound to `[]`, they are appended to, and
    given to functions that keep nothing."""
    fine: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = one_by_one(node.targets[0], node.value)
            fine |= {id(to) for to, made in pairs if isinstance(made, ast.List) and not made.elts}
        elif isinstance(node, ast.Subscript):
            fine.add(id(node.value))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                fine.add(id(node.func.value))
            if last_name(node.func) in _VALUES or root_name(node.func, None) in modules:
                fine |= {id(argument) for argument in node.args}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return frozenset(bound - {name.id for name in names if id(name) not in fine})


def shared(tree: ast.Module, modules: Names) -> dict[str, Names]:
    """By variable, the others whose change it may show. `modules` are names of modules, whose
    functions keep nothing."""
    return _Sharing(tree, modules).found()


class _Sharing:
    def __init__(self, tree: ast.Module, modules: Names):
        self._modules = modules
        self._functions: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        self._classes: dict[str, set[str]] = {}  # the attributes that their methods bind
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes[node.name] = _stored(node)
                inits = (part for part in node.body if getattr(part, "name", "") == "__init__")
                self._functions[node.name] += [i for i in inits if isinstance(i, ast.FunctionDef)]
        self._same: dict[str, str] = {}
        self._holds: dict[str, set[str]] = defaultdict(set)
        self._parts: dict[str, set[str]] = defaultdict(set)  # what is taken out of what
        self._changing: set[str] = set()
        self._own = _stored(tree)
        self._names: set[str] = set()
        for node in ast.walk(tree):
            self._changing |= _written(node, modules)
            self._look_at(node)
        for name, functions in self._functions.items():
            for node in (inner for function in functions for inner in ast.walk(function)):
                if isinstance(node, ast.Return) and node.value is not None:
                    self._return(name, node.value)

    def found(self) -> dict[str, Names]:
        classes: dict[str, set[str]] = defaultdict(set)
        for name in self._names.union(self._holds, *self._holds.values()):
            classes[self._one(name)].add(name)
        changing = {self._one(name) for name in self._changing}
        down: dict[str, set[str]] = defaultdict(set)
        up: dict[str, set[str]] = defaultdict(set)
        for holder, held in self._holds.items():
            for one in map(self._one, held):
                if one != self._one(holder):
                    down[self._one(holder)].add(one)
                    up[one].add(self._one(holder))
        parts: dict[str, set[str]] = defaultdict(set)
        for name, of in self._parts.items():
            parts[self._one(name)] |= set(map(self._one, of))
        changing |= {part for name in tuple(changing) for part in _reached(name, parts)}

        def showing(group: str) -> set[str]:
            """Also what else holds something that it holds, and may change."""
            held = _reached(group, down)
            others = (_reached(one, up) for one in held & changing)
            return {group, *held, *_reached(group, up)}.union(*others)

        return {
            name: frozenset(other for one in showing(group) & changing for other in classes[one])
            - {name}
            for group, names in classes.items()
            for name in names
        }

    def _one(self, name: str) -> str:
        while (other := self._same.get(name, name)) != name:
            name = other
        return name

    def _look_at(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part, value in one_by_one(target, node.value):
                    if value is node.value and part is not target:
                        self._hold(value, None if _makes(value) else _variable(part))
                    else:
                        self._give(part, value)
                function = last_name(getattr(node.value, "func", node.value))
                if isinstance(target, ast.Tuple) and function in self._functions:
                    for number, part in enumerate(target.elts):
                        self._give(part, ast.Name(f"{function}()[{number}]"))
            names = [name for t in node.targets if (name := _variable(t)) is not None]
            for one, other in pairwise(names):
                self._unite(one, other)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._give(node.target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            for target, value in one_by_one(node.target, node.iter):
                self._hold(value, _variable(target))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._give(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.Call):
            for called in self._functions.get(last_name(node.func), ()):
                self._pass(node, called)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.Assign):
                    self._holds[node.name] |= self._held(inner.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)

    def _give(self, target: ast.expr, value: ast.expr) -> None:
        name = _variable(target)
        if name is None:  # a part of an object gets it
            root = root_name(target, _SELF)
            if root is not None:
                self._names.add(root)
                self._holds[root] |= self._held(value)
            return
        self._names.add(name)
        for part in _choices(value):
            other = _variable(part)
            if other is not None and other != _SELF:
                self._unite(name, other)
            elif isinstance(part, ast.Attribute | ast.Subscript) or _takes(part):
                self._hold(part, name)
            else:
                self._make(name, part)

    def _make(self, name: str, value: ast.expr) -> None:
        if not isinstance(value, ast.Call):
            self._holds[name] |= self._held(value)
            if isinstance(value, _DISPLAYS):
                self._changing.add(name)
            return
        called, root = last_name(value.func), root_name(value.func, None)
        if called in {*self._classes, *_CONTAINERS, "open"} or root in self._classes:
            self._changing.add(name)
            self._holds[name] |= self._held(value) | self._classes.get(called, set())
        elif called in _ITERATORS or any(map(is_generator, self._functions.get(called, ()))):
            self._holds[name] |= self._held(value)
        elif called in self._functions:
            self._unite(name, f"{called}()")

    def _return(self, function: str, value: ast.expr) -> None:
        self._give(ast.Name(f"{function}()"), value)
        for number, part in enumerate(getattr(value, "elts", ())):
            self._give(ast.Name(f"{function}()[{number}]"), part)

    def _hold(self, value: ast.expr, part: str | None) -> None:
        """What is in a value, or in what it is made of, gets another name."""
        if part is None:
            return
        self._names.add(part)
        root = root_name(value, _SELF)
        for name in self._held(value) if root is None else {root}:
            self._holds[name].add(part)
            self._parts[name].add(part)

    def _held(self, value: ast.expr) -> set[str]:
        """The variables whose objects a value may hold."""
        found: set[str] = set()
        if isinstance(value, ast.Call):
            root, called = root_name(value.func, None), last_name(value.func)
            if called in _VALUES or (root in self._modules and called not in _ITERATORS):
                return found
        elif isinstance(value, (*FUNCTIONS, ast.Compare, ast.BinOp, ast.JoinedStr, ast.Constant)):
            return found if not isinstance(value, ast.Lambda) else self._in(value.body)
        name = _variable(value)
        if name == _SELF:  # whose attributes it may read at any time
            self._changing |= self._own
            return set(self._own)
        if name is not None:
            self._names.add(name)
            return {name}
        for part in ast.iter_child_nodes(value):
            if isinstance(value, ast.Call) and part is value.func:
                continue
            if isinstance(part, ast.keyword | ast.comprehension):
                part = part.value if isinstance(part, ast.keyword) else part.iter
            if isinstance(part, ast.expr):
                found |= self._held(part)
        return found

    def _in(self, node: ast.AST) -> set[str]:
        names = {name for n in ast.walk(node) if (name := _variable(n)) is not None}
        self._names |= names
        return names

    def _call(self, call: ast.Call) -> None:
        """`display.add_meter("loss", meter)`."""
        root = root_name(call.func, _SELF)
        if isinstance(call.func, ast.Attribute) and root not in {None, _SELF, *self._modules}:
            assert root is not None
            for argument in (*call.args, *(k.value for k in call.keywords)):
                if not isinstance(argument, ast.Call):
                    self._holds[root] |= self._held(argument)

    def _pass(self, call: ast.Call, function: ast.FunctionDef) -> None:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if names[:1] == [_SELF] else names
        pairs = [*zip(names, call.args), *((k.arg, k.value) for k in call.keywords)]
        for rest in filter(None, (function.args.vararg, function.args.kwarg)):
            given: list[ast.expr] = [*call.args[len(names) :], *(k.value for k in call.keywords)]
            pairs.append((rest.arg, ast.List(given)))
        for name, value in pairs:
            if name is not None and not isinstance(value, ast.Constant):
                self._give(ast.Name(name), value)

    def _unite(self, one: str, other: str) -> None:
        self._names |= {one, other}
        if self._one(one) != self._one(other):
            self._same[self._one(one)] = self._one(other)


def _stored(tree: ast.AST) -> set[str]:
    """`self.x` for all attributes that it binds of `self`."""
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if (name := _variable(node)) is not None
    }


def _written(node: ast.AST, modules: Names) -> set[str]:
    """The variables whose arrays and tensors a part of the file writes into: `counts[y] += 1`,
    `np.add.at(counts, y, 1)`."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        # A text is a key of a dictionary: group["lr"].
        parts = [] if isinstance(getattr(node.slice, "value", None), str) else [node]
    elif isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Subscript):
        parts = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        called = last_name(call.func)
        if root_name(call.func, None) in modules:
            parts = call.args[:1]
        elif called in _IN_PLACE or (called.endswith("_") and not called.endswith("__")):
            parts = [call.func]
    elif isinstance(node, ast.keyword) and node.arg == "out":
        parts = [node.value]
    return {name for part in parts if (name := root_name(part, _SELF)) is not None}


def _variable(node: ast.AST) -> str | None:
    """`x`, or `self.x`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == _SELF:
        return f"{_SELF}.{node.attr}"
    return None


def _takes(value: ast.expr) -> bool:
    """`history.setdefault("loss", [])`."""
    taking = ("setdefault", "get", "pop", "values", "items")
    return isinstance(value, ast.Call) and getattr(value.func, "attr", "") in taking


def _makes(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and not _takes(value)


def _choices(value: ast.expr) -> Iterator[ast.expr]:
    """What `a if c else b`, or `a or b`, may be."""
    if isinstance(value, ast.IfExp):
        yield from (*_choices(value.body), *_choices(value.orelse))
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _choices(part)
    else:
        yield value


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [start]
    while left:
        more = edges.get(left.pop(), set()) - found
        found |= more
        left += more
    return found - {start}
