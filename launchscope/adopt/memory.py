"""Which variables hold parts of the model, and which share memory with others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from launchscope.adopt.definitions import Imports
from launchscope.adopt.effects import state_reads
from launchscope.adopt.names import NOTHING, Names, Uses, own_name, root_name
from launchscope.adopt.region import Region, own_calls
from launchscope.adopt.sharing import one_by_one, shared
from launchscope.python_source import last_name

BUILTIN = frozenset(("print", "float", "int", "len", "range", "zip", "enumerate", "sum", "list"))
_HOLDING = frozenset((
    "list", "dict", "tuple", "iter", "next", "reversed", "sorted", "filter", "zip", "enumerate",
    "getattr",
))  # fmt: skip
_GIVING = frozenset(("parameters", "values", "list", "filter", "chain"))
_SHOWING = frozenset((
    "log", "info", "debug", "warning", "error", "write", "add_graph", "load_state_dict",
))  # fmt: skip
_SIZES = frozenset(("item", "numel", "size", "dim"))
_HOLDERS = (ast.Name, ast.Attribute, ast.Subscript, ast.Dict, ast.List, ast.Tuple,
            ast.ListComp, ast.DictComp, ast.IfExp, ast.BoolOp)  # fmt: skip
_SETTINGS = frozenset(("device", "dtype", "training", "shape", "ndim", "param_groups"))
# Methods of a tensor, a module or a dictionary whose result shares its memory.
_VIEWS = frozenset((
    "detach", "view", "view_as", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "t",
    "permute", "expand", "expand_as", "narrow", "select", "unbind", "chunk", "split", "diagonal",
    "contiguous", "to", "float", "cpu", "numpy", "state_dict", "parameters", "named_parameters",
    "buffers", "named_buffers", "get_parameter", "get_buffer", "values", "items", "get",
))  # fmt: skip


def parts(region: Region, state: Names, known: Imports, owner: str | None) -> Names:
    """The variables that hold parts of the model, or what was made with it, outside of the step:
    `layer = model[0]`, `log = Log(model)`, and `layer` for `model = nn.Sequential(layer)`."""
    steps = [c for s in region.marks for c in own_calls(s.node)
             if getattr(c.func, "attr", "") == "step"]  # fmt: skip
    optimizers = {root_name(part, owner) for c in steps for part in (c.func, *c.args)}
    inside = {s for statement in region.statements for s in statement.walk()}
    made = [
        (name, value)
        for s in region.source.statements
        if s not in inside
        for part, value in _given(s.node, known)
        if (name := root_name(part, owner)) is not None
        if "." in name or s.function() in (region.function, None)  # methods share attributes
    ]
    modules = {
        node.name for node in ast.walk(region.source.tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Module") for base in node.bases)
    }  # fmt: skip
    layers = {name for name, value in made if _is_layer(value, known, frozenset(modules))}
    found: set[str] = set()
    for name, value in made:
        if name in state - optimizers:
            found |= layers & Uses([value], owner).reads
        elif name in optimizers:
            found |= _optimized(value, owner)
    for name, value in reversed(made):
        if name in found and isinstance(value, ast.Dict | ast.List | ast.Tuple):
            found |= _optimized(value, owner)
    found -= state | BUILTIN | known.computing
    count = -1
    while len(found) > count:
        count = len(found)
        whole = (state - optimizers) | found
        found |= {n for n, value in made if n not in state and _is_part(value, whole, known, owner)}
    # A name may be that of a loop elsewhere.
    return frozenset(found) - Uses([s.node for s in region.statements], owner).binds


def _optimized(value: ast.expr, owner: str | None) -> Names:
    """The variables with the parameters that an optimizer gets: in a call, or in their groups."""
    if isinstance(value, ast.Call):
        called = last_name(value.func)
        if not called[:1].isupper() and called != "add_param_group":
            return frozenset(Uses([value], owner).reads) if called in _GIVING else NOTHING
        parts = [*value.args[:1], *(k.value for k in value.keywords if k.arg == "params")]
        return NOTHING.union(*(_optimized(part, owner) for part in parts))
    if isinstance(value, ast.List | ast.Tuple):
        return NOTHING.union(*(_optimized(part, owner) for part in value.elts))
    if isinstance(value, ast.Dict):  # not its rate
        keys = [getattr(key, "value", None) for key in value.keys]
        parts = [part for key, part in zip(keys, value.values) if key == "params"]
        return NOTHING.union(*(_optimized(part, owner) for part in parts or value.values))
    return frozenset(Uses([value], owner).reads)


def _given(node: ast.stmt, known: Imports) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What gets which values: variables, loops, containers, and objects whose methods are called
    for their effect."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from one_by_one(target, node.value)
    elif isinstance(node, ast.For):
        yield from one_by_one(node.target, node.iter)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr in _SHOWING:
            return
        if root_name(call.func, None) not in known.modules:
            for argument in call.args:
                yield call.func.value, argument


def _is_layer(value: ast.expr, known: Imports, modules: Names) -> bool:
    """`nn.Linear(4, 4)`, or `Encoder()` of a class in `modules`."""
    if not isinstance(value, ast.Call):
        return False
    called = last_name(value.func)
    of_torch = root_name(value.func, None) in known.torch and called[:1].isupper()
    return of_torch or called in modules


def _gets(call: ast.Call, whole: Names, owner: str | None) -> bool:
    return any(own_name(argument, owner) in whole for argument in call.args)


def _is_part(value: ast.expr, whole: Names, known: Imports, owner: str | None) -> bool:
    """Whether a value shares memory with `whole`, or keeps it: no number, and no new tensor."""
    if isinstance(value, ast.Call):
        if own_name(value.func, owner) in whole:
            return False  # a forward
        called = last_name(value.func)
        holds = called in _HOLDING or called[:1].isupper() or root_name(value.func, owner) in whole
        # A function of the person's, or of a library, may give back a part of what it gets.
        unknown = root_name(value.func, owner) not in known.computing | BUILTIN
        holds = holds or (unknown and _gets(value, whole, owner))
        if not holds or called in _SIZES:
            return False
    elif not isinstance(value, _HOLDERS):
        return False
    return bool(state_reads(value, owner) & whole)


def views(
    nodes: Iterable[ast.AST], region: Region, state: Names, known: Imports, owner: str | None
) -> dict[str, Names]:
    """For each variable, those whose memory it may share, in `nodes` or from around the step."""
    own = {s for statement in region.statements for s in statement.walk()}
    around = [
        s.node for s in region.source.statements
        if s not in own and isinstance(s.node, ast.Assign)
        and (root := viewed(s.node.value, None)) is not None and root not in state
    ]  # fmt: skip
    found = _viewed([*around, *nodes], owner)
    for name, others in shared(region.source.tree, known.modules).items():
        found[name] = found.get(name, NOTHING) | others
    return found


def _viewed(nodes: Iterable[ast.AST], owner: str | None) -> dict[str, Names]:
    """By name, those whose memory it may share: `a` for `b = a.detach()`, and then `b` for `a`."""
    found: dict[str, Names] = {}
    views: dict[str, set[str]] = {}
    given: list[tuple[ast.expr, ast.expr]] = []
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Assign):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.comprehension):
                    given += one_by_one(inner.target, inner.iter)
            pairs = [pair for t in node.targets for pair in one_by_one(t, node.value)]
            given += [(target, part) for target, value in pairs for part in _parts_of(value)]
        elif isinstance(node, ast.For):
            given += one_by_one(node.target, node.iter)
    for target, value in given:
        source = viewed(value, owner)
        root = source or root_name(value, owner)
        if root is None:
            continue
        names = Uses([target], owner).binds - {root}
        for name in names:
            found[name] = found.get(name, NOTHING) | found.get(root, NOTHING) | {root}
        if source is None:
            continue
        for other in tuple(views.setdefault(root, {root})):
            found[other] = found.get(other, NOTHING) | names
            views.setdefault(other, {other}).update(names)
        for name in names:
            views.setdefault(name, {name}).update(views[root])
    return found


def _parts_of(value: ast.expr) -> list[ast.expr]:
    """What a container is made of that is written down in place."""
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return [value, *value.elts]
    if isinstance(value, ast.Dict):
        return [value, *value.values]
    if isinstance(value, ast.DictComp):
        return [value, value.value]
    if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [value, value.elt]
    return [value]


def viewed(value: ast.expr, owner: str | None) -> str | None:
    """The variable whose value, or a part of it, an expression is, or shares memory with:
    `a[0].t()`, `dict(model.named_parameters())`."""
    while (name := own_name(value, owner)) is None:
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
                value = value.func
            elif getattr(value.func, "id", "") in _HOLDING and value.args:
                value = value.args[0]
            else:
                return None
        elif isinstance(value, ast.Subscript) or (
            isinstance(value, ast.Attribute) and value.attr not in _SETTINGS
        ):
            value = value.value
        else:
            return None
    return name
