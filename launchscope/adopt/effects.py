"""What one statement of a loop does beside binding names, as far as its text says it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from launchscope.adopt.definitions import (
    COPIES,
    FILLING,
    LOGGING,
    SETTERS,
    Imports,
    writes_in_place,
    writes_rate,
)
from launchscope.adopt.names import FUNCTIONS, NOTHING, Names, Uses, own_name, root_name
from launchscope.python_source import last_name

# Methods of a tensor that wait for the GPU and give a value of the host.
HOST_READS = frozenset(("item", "tolist", "numpy", "cpu", "__float__"))
_HOST_FUNCTIONS = frozenset(("print", "input", "open", "next", "exec", "eval", "breakpoint"))
_CONVERSIONS = frozenset(("float", "int", "bool", "str", "repr", "format"))
_TORCH_ON_HOST = frozenset((
    "save", "synchronize", "empty_cache", "memory_allocated", "max_memory_allocated", "barrier",
    "memory_reserved", "max_memory_reserved", "memory_stats", "mem_get_info", "get_num_threads",
    "initial_seed",
))  # fmt: skip
_TORCH_RANDOM = frozenset(("rand", "randn", "randint", "randperm"))
_ORDERED = frozenset(("print", "random", "open"))
# Functions and methods that change nothing.
_PURE = frozenset((
    "len", "min", "max", "sum", "abs", "zip", "range", "enumerate", "list", "tuple", "dict",
    "set", "isinstance", "getattr", "hasattr", "sorted", "reversed", "round", "any", "all",
    "map", "super",
))  # fmt: skip
_PURE_METHODS = frozenset((
    "size", "dim", "numel", "view", "reshape", "flatten", "float", "half", "long", "detach",
    "clone", "unsqueeze", "squeeze", "transpose", "permute", "contiguous", "items", "keys",
    "values", "get", "parameters", "named_parameters", "split", "format", "train", "eval",
    "data_ptr", "type", "expand", "repeat", "chunk", "mean", "sum", "max", "min", "argmax", "eq",
    "ne", "unbind", "get_last_lr",
))  # fmt: skip
# Methods of a tensor that compute a new one.
_COMPUTING = frozenset((
    "abs", "clamp", "exp", "gather", "norm", "pow", "prod", "softmax", "log_softmax", "sqrt",
    "square", "std", "var",
))  # fmt: skip
_STATE_READS = frozenset(("param_groups", "training", "defaults", "device", "dtype"))
_SCALARS_OF_TENSORS = frozenset(("shape", "ndim", "dtype", "device", "size", "dim", "numel"))


@dataclass
class Effects:
    """Of one statement with all that is in it."""

    uses: Uses
    changes: set[str] = field(default_factory=set)  # objects that it writes into
    host: bool = False  # it must run in each iteration, so it cannot be in a graph
    read: ast.AST | None = None  # where it reads a value of the GPU
    schedule: bool = False  # it changes a learning rate
    fetch: bool = False  # it gets data from the host
    copies: bool = False  # to the GPU
    opaque: bool = False  # it calls what may read the model, although no name says so
    draws: bool = False  # random numbers of torch on the host, not sent to a device
    # Of print, random, open: itself or in a function.
    ordered: set[str] = field(default_factory=set)
    unknown: bool = False  # it may do anything to objects that it does not name
    leaves: ast.AST | None = None  # it may end the iteration
    guards: bool = False  # an assertion, or an error that a branch raises: nothing may come behind
    scopes: ast.AST | None = None  # del, global, nonlocal, :=
    reads_behind: Names = NOTHING  # what functions of the file that it calls read
    changes_behind: Names = NOTHING  # and change
    given: bool = False  # it only takes what a function gives that is called without the step's


def effects_of(
    node: ast.stmt, made: Names, state: Names, known: Imports, owner: str | None
) -> Effects:
    """`made` are the names that the step binds, `state` those of its model, optimizer, scaler."""
    found = Effects(Uses([node], owner))
    found.reads_behind, found.changes_behind = known.behind(node, owner)
    _control(node, found)
    for inner in _within(node):
        if isinstance(inner, ast.Call):
            _call(inner, found, made, state, known, owner)
            _in_place(inner, found, known, owner)
        elif isinstance(inner, ast.If | ast.While | ast.IfExp | ast.Assert):
            if _decides(inner.test, made, owner):
                found.host, found.read = True, found.read or inner.test
        elif isinstance(inner, ast.Attribute) and inner.attr in known.properties:
            found.opaque = found.opaque or known.sees_model(inner.attr, state)
        elif isinstance(inner, ast.JoinedStr) and made & Uses([inner], owner).reads:
            found.host, found.read = True, found.read or inner
        elif isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in inner.targets if isinstance(inner, ast.Assign) else [inner.target]:
                _target(target, found, made, owner)
                if owner and getattr(getattr(target, "value", None), "id", "") in known.making:
                    found.changes.add(f"{owner}.{getattr(target, 'attr', '')}")  # of its class
    for inner in _within(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            _expression(inner.value, found, made, state, known, owner)
    for inner in node.body if isinstance(node, ast.With) else [node]:
        if isinstance(inner, ast.AugAssign):
            name = own_name(inner.target, owner)
            found.host = found.host or (name is not None and name not in made)
    if _sets_rate(node, known):
        found.host = found.schedule = True
        found.unknown = found.unknown or not _only_sets(node)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        found.host = found.fetch = True
    found.guards |= any(isinstance(inner, ast.Assert) for inner in _within(node))
    found.opaque |= any(_stores_to_class(inner, known) for inner in _within(node))
    alone = isinstance(node, ast.Assign) and not found.uses.reads & (made | state)
    found.given = alone and not found.host
    if alone and (found.unknown or found.host or found.reads_behind):
        found.host = found.fetch = True
        found.unknown = False
    if found.host:
        calls = [inner for inner in _within(node) if isinstance(inner, ast.Call)]
        found.changes |= _called_objects(calls, made | state, known, owner)
        found.changes |= _entered_objects(node, known, owner) - made - state
    return found


def only_computes(node: ast.AST, tensors: Set[str], known: Imports) -> bool:
    """Whether all that it calls are methods that compute with such variables: `a / a.std()`."""
    return all(
        isinstance(inner.func, ast.Attribute)
        and inner.func.attr in _PURE_METHODS | _COMPUTING
        and inner.func.attr not in known.functions
        and root_name(inner.func, None) in tensors - known.arrays
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
    )


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what runs in it; a function that is defined in it does not."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            yield from _within(child)


def _control(node: ast.AST, found: Effects, loops: int = 0, chosen: bool = False) -> None:
    """`chosen`: an `if` of the statement decides whether the node runs, and no `try` holds it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # its return leaves nothing
        declares = (n for n in ast.walk(node) if isinstance(n, ast.Global | ast.Nonlocal))
        found.scopes = next(declares, None)
        return
    for inner in ast.iter_child_nodes(node) if isinstance(node, ast.stmt) else ():
        if isinstance(inner, FUNCTIONS):
            continue
        within = chosen if not isinstance(node, ast.If | ast.Try) else isinstance(node, ast.If)
        _control(inner, found, loops + isinstance(node, ast.For | ast.While), within)
    if isinstance(node, ast.Raise) and chosen and node.exc is not None:
        found.guards = True
    elif isinstance(node, ast.Return | ast.Raise) or (
        isinstance(node, ast.Break | ast.Continue) and not loops
    ):
        found.leaves = node
    for inner in _within(node) if not loops else ():
        if isinstance(inner, ast.Yield | ast.YieldFrom | ast.Await):
            found.leaves = inner
        elif isinstance(inner, ast.Delete | ast.Global | ast.Nonlocal | ast.NamedExpr):
            found.scopes = inner


def may_exit(node: ast.AST) -> bool:
    """Whether it may end the script: `sys.exit(1)`."""
    return any(
        isinstance(inner, ast.Call) and last_name(inner.func) in ("exit", "quit")
        for inner in _within(node)
    )


def keyword_of(node: ast.AST) -> str:
    """How a program spells what may end the iteration: `break`, `yield from`."""
    return "yield from" if isinstance(node, ast.YieldFrom) else type(node).__name__.lower()


def rebound_by(node: ast.AST) -> str:
    """The first name that a `del`, `global`, `nonlocal` or `:=` is about."""
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names[0]
    assert isinstance(node, ast.Delete | ast.NamedExpr)
    return ast.unparse(node.targets[0] if isinstance(node, ast.Delete) else node.target)


def _call(
    node: ast.Call, found: Effects, made: Names, state: Names, known: Imports, owner: str | None
) -> None:
    function = node.func
    names = Uses([node], owner).reads
    called = last_name(function)
    behind = known.named_within(called)
    found.ordered |= _ORDERED & {*ast.unparse(function).split("."), *behind}
    if known.drawing & {root_name(function, None), *behind}:
        found.ordered.add("random")
    if isinstance(function, ast.Name):
        if function.id in _HOST_FUNCTIONS:
            if function.id == "next":
                found.copies = found.fetch = True
                found.changes |= {root for a in node.args if (root := root_name(a, owner))}
            elif names & made:
                found.host, found.read = True, found.read or node
            else:
                found.host = True
        elif function.id in _CONVERSIONS:
            if names & made and not _only_shapes(node.args, made, owner):
                found.host, found.read = True, found.read or node
        elif function.id not in known.computing | _PURE:
            found.unknown = True
            found.draws = found.draws or not function.id[:1].isupper()
            sees = known.functions.get(function.id)
            found.opaque = found.opaque or sees is None or bool(sees & state)
        return
    if not isinstance(function, ast.Attribute):
        found.unknown = True
        return
    method, root = function.attr, root_name(function, owner)
    if method in FILLING and root is not None and root in made:
        found.changes.add(root)  # a list that the step makes, and the host fills
    if method in HOST_READS and not (method == "numpy" and root in known.torch):
        found.host, found.read = True, found.read or node
    elif method == "exit" or root in known.host or ast.unparse(function.value) in known.files:
        found.host = True
        if method == "shuffle":
            found.changes |= {name for a in node.args if (name := root_name(a, owner))}
    elif method in COPIES and root not in known.torch:
        found.copies = found.copies or (not names & made and not _casts(node, known))
    elif root in known.torch:
        if method in _TORCH_ON_HOST:
            found.host = True
        if method in _TORCH_RANDOM and not any(k.arg == "device" for k in node.keywords):
            found.host = found.fetch = found.draws = True
    elif method == "step" and known.is_scheduler(function.value):
        found.host = found.schedule = True
    elif (
        root is not None
        and root not in made
        and root not in state
        and root not in known.pure
        and (method not in _PURE_METHODS or method in known.changing)
    ):
        keeps = method in LOGGING or (method == "update" and bool(node.args or node.keywords))
        keeps = keeps and not known.sees_model(method, state)
        sees_model = method not in known.functions or known.sees_model(method, state)
        found.unknown = found.unknown or not keeps
        found.opaque = found.opaque or (not keeps and sees_model)


def _in_place(node: ast.Call, found: Effects, known: Imports, owner: str | None) -> None:
    """`x.mul_(2)`, `F.relu_(x)`, `F.relu(x, inplace=True)` and `torch.add(x, 1, out=y)` write."""
    root = root_name(node.func, owner)
    called = last_name(node.func)
    written: list[ast.expr] = [k.value for k in node.keywords if k.arg == "out"]
    if called in known.writers:
        given = (*node.args, *(k.value for k in node.keywords))
        written += [a for a in given if isinstance(a, ast.Name | ast.Attribute | ast.Subscript)]
    elif writes_in_place(node) or (called.endswith("_") and not called.endswith("__")):
        written += node.args[:1] if root in known.torch else [node.func]
    for one in written:
        if (name := root_name(one, owner)) is not None and name not in known.torch:
            found.changes.add(name)


def _casts(node: ast.Call, known: Imports) -> bool:
    """`x.to(torch.float32)`."""
    target = node.args[0] if node.args else None
    return isinstance(target, ast.Attribute) and root_name(target, None) in known.torch


def _expression(
    call: ast.Call, found: Effects, made: Names, state: Names, known: Imports, owner: str | None
) -> None:
    """A call for its effect."""
    function = call.func
    root = root_name(function, owner)
    builtin = _HOST_FUNCTIONS | _CONVERSIONS
    if isinstance(function, ast.Name) and function.id in known.functions.keys() - builtin:
        given = (own_name(argument, owner) for argument in call.args)
        found.changes |= {name for name in given if name is not None}
    if not isinstance(function, ast.Attribute) or root is None:
        return
    if root in known.host:  # np.add.at(counts, at, 1)
        found.changes |= {name for a in call.args[:1] if (name := root_name(a, owner)) is not None}
    if root in made or root in state or root in known.computing:
        return
    found.changes.add(root)
    if function.attr in LOGGING or (function.attr == "update" and (call.args or call.keywords)):
        found.host = True


def _called_objects(
    calls: Iterable[ast.Call], others: Names, known: Imports, owner: str | None
) -> Names:
    """The objects whose methods are called, which may change them: `sampler` in `sampler.draw()`.
    Not the one whose method the step is, of which `behind` knows what it changes."""
    unchanging = (_PURE_METHODS | HOST_READS | COPIES) - known.functions.keys()
    roots = {
        root_name(call.func.value, owner)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr not in unchanging
    }
    if "__call__" in known.functions:
        named = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        roots |= named - known.functions.keys() - known.making.keys() - _HOST_FUNCTIONS - _PURE
    known_ones = others | known.modules | {owner}
    return frozenset(root for root in roots if root is not None and root not in known_ones)


def _stores_to_class(node: ast.AST, known: Imports) -> bool:
    """Whether it binds what all objects of a class have, or any attribute of an object:
    `type(self).count += 1`, `self.__dict__["count"] = 1`."""
    if not isinstance(node, ast.Attribute | ast.Subscript) or isinstance(node.ctx, ast.Load):
        return False
    of = node.value
    return (
        (isinstance(of, ast.Name) and of.id in {*known.making, "cls"})
        or (isinstance(of, ast.Attribute) and of.attr in ("__class__", "__dict__"))
        or (isinstance(of, ast.Call) and last_name(of.func) in ("type", "vars"))
    )


def _entered_objects(node: ast.AST, known: Imports, owner: str | None) -> Names:
    """The objects of the file's classes that it enters: `with timer:`."""
    if not {"__enter__", "__exit__"} & known.functions.keys():
        return NOTHING
    contexts = (inner.context_expr for inner in _within(node) if isinstance(inner, ast.withitem))
    roots = frozenset(root for context in contexts if (root := root_name(context, owner)))
    return roots - known.modules - {owner}


def _target(target: ast.expr, found: Effects, made: Names, owner: str | None) -> None:
    for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
        if own_name(part, owner) is not None:
            continue
        root = root_name(part, owner)
        if root is None:
            continue
        found.changes.add(root)
        # The last is DDP's, and what `graphed` compares in each call.
        kept = ("grad", "data", "require_backward_grad_sync")
        if root not in made and not (isinstance(part, ast.Attribute) and part.attr in kept):
            found.host = True


def _decides(test: ast.expr, made: Names, owner: str | None) -> bool:
    """Whether values that the step computes decide a branch, not their shapes or presence."""
    for node in ast.walk(test):
        presence = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
        if presence or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in _PURE):
            made -= Uses([node], owner).reads
    return not _only_shapes([test], made, owner)


def _sets_rate(node: ast.stmt, known: Imports) -> bool:
    """`for group in optimizer.param_groups: group["lr"] = ...`, and all that writes to a group."""
    return writes_rate(_within(node), known.rates) or calls_one_of(node, known.setting)


def calls_one_of(node: ast.AST, functions: Names) -> bool:
    return any(
        (isinstance(n, ast.Call) and last_name(n.func) in functions)
        or (isinstance(n, ast.FormattedValue) and "str" in functions)
        for n in _within(node)
    )


def _only_sets(node: ast.stmt) -> bool:
    """Whether nothing else is done in a statement that sets rates."""
    return all(
        isinstance(n, ast.For | ast.If | ast.Assign | ast.AugAssign | ast.Pass)
        or (
            isinstance(n, ast.Expr)
            and isinstance(n.value, ast.Call)
            and last_name(n.value.func) in SETTERS
        )
        for n in _within(node)
        if isinstance(n, ast.stmt)
    )


def _only_shapes(nodes: Iterable[ast.expr], made: Names, owner: str | None) -> bool:
    """Whether what is read of the step's values are shapes alone."""
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in _SCALARS_OF_TENSORS:
                made -= {root_name(inner, owner)}
    return not any(made & Uses([node], owner).reads for node in nodes)


def state_reads(node: ast.AST, owner: str | None) -> Names:
    """The names whose value a statement reads, without those of which it only reads a setting."""
    settings = {
        id(inner.value)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and inner.attr in _STATE_READS
    }
    found = set()
    for inner in ast.walk(node):
        name = own_name(inner, owner)
        if name is not None and id(inner) not in settings:
            found.add(name)
    return frozenset(found)
