"""Changes of the text that make a step movable: values that the host reads get names of their own;
copies to the GPU, and what NumPy selects, are computed before the call."""

from __future__ import annotations

import ast
import keyword

from launchscope.adopt.conditions import Conditions
from launchscope.adopt.definitions import COPIES, Imports
from launchscope.adopt.memory import viewed
from launchscope.adopt.names import (
    COMPREHENSIONS,
    FUNCTIONS,
    NOTHING,
    Names,
    Uses,
    own_name,
    parameters,
    root_name,
)
from launchscope.adopt.patch import RefusalReason
from launchscope.adopt.region import Region, counters
from launchscope.adopt.sorting import (
    Item,
    Sorted,
    bound_by,
    catches,
    written_by,
)
from launchscope.adopt.source import Edit, RefusedError, Source
from launchscope.adopt.splits import gpu_value, reads_beside
from launchscope.python_source import last_name, parsed


def snapshots(items: list[Item], hoisting: Hoisting) -> list[Edit]:
    """Where the step binds a name again that a moved statement reads, the earlier value gets a name
    of its own."""
    edits: list[Edit] = []
    source = hoisting.source
    for index, item in enumerate(items):
        if item.role != "after":
            continue
        core = [other for other in items[index + 1 :] if other.role == "core"]
        later = {n for other in core for n in bound_by(other)}
        in_place = written_by(core)
        begin = source.span(item.statement.node)[0]
        for name in sorted(later & item.effects.uses.reads):
            alias = hoisting.fresh(f"{name}_before")
            value = f"{name}.detach().clone()" if name in in_place else name
            end = source.line_break_before(begin) if item.statement.blocks else "; "
            head = f"{alias} = {value}{end}"
            edits.append(Edit(begin, begin, head, ((0, "core"), (len(head), "after"))))
            for node in ast.walk(item.statement.node):
                if isinstance(node, ast.Name) and node.id == name:
                    # Inside an f-string before Python 3.12, or in `f"{name=}"`, which shows it.
                    if source.code(node) != name or _shows_code(item.statement.node, source):
                        raise RefusedError("host_read", item.statement.node, name)
                    edits.append(Edit(*source.span(node), alias))
    return edits


def needs_split(item: Item) -> bool:
    """Whether a statement makes a call of the step and reads its value on the host."""
    if not item.calls or item.statement.blocks or item.is_header:
        return False
    return item.effects.host or isinstance(item.statement.node, ast.Return)


def split(item: Item, later: list[Item], source: Source, hoisting: Hoisting) -> Edit:
    """`x = model(y).item()` becomes `x = model(y); x = x.item()`; the second goes behind."""
    node = item.statement.node
    value = gpu_value(node)
    core = [other for other in later if other.role == "core"]
    needed = {name for other in core for name in other.effects.uses.reads}
    if value is not None and item.effects.host:  # what is left of it would read later values
        changed = written_by(core) | {name for other in core for name in bound_by(other)}
        if any("step" in other.calls for other in core):
            changed |= hoisting.state
        shown = frozenset({viewed(value, hoisting.owner)} - {None})
        if changed & (reads_beside(node, value, hoisting.owner) | shown):
            value = None
    if value is None or needed & (item.effects.uses.binds | item.effects.changes):
        at = item.effects.read or node
        reason: RefusalReason = "host_read" if item.effects.read else "host_work"
        raise RefusedError(reason, at, ast.unparse(at)[:80])
    # Inside an f-string before Python 3.12, or in `f"{value=}"`, which shows it.
    if ast.unparse(value) != _unparsed(source.code(value)) or _shows_code(node, source):
        raise RefusedError("host_read", node, ast.unparse(value)[:80])
    names = [own_name(t, None) for t in node.targets] if isinstance(node, ast.Assign) else []
    name = names[0] if len(names) == 1 and names[0] else hoisting.fresh("output")
    begin, end = source.span(node)
    first, last = source.span(value)
    if (behind := _behind_rest(node, value, core, source, hoisting)) is not None:
        raise RefusedError("host_work", node, behind)
    hoisting.values[name] = first, last
    before = len(hoisting.edits)
    hoisting.visit(value)
    code = source.applied(hoisting.edits[before:], first, last)
    del hoisting.edits[before:]
    text = f"({code})" if "\n" in code or isinstance(value, ast.Tuple) else code
    head = f"{name} = {text}; "
    rest = source.text[begin:first] + name + source.text[last:end]
    return Edit(begin, end, head + rest, ((0, "core"), (len(head), "after")))


def _behind_rest(
    node: ast.stmt, value: ast.expr, core: list[Item], source: Source, hoisting: Hoisting
) -> str | None:
    """A name that functions of the file which a statement calls beside a value read and the rest of
    the step changes, or the other way around: `note(model(x).item())` with a `global` in it."""
    (begin, end), (first, last) = source.span(node), source.span(value)
    rest = parsed(f"{source.text[begin:first]}None{source.text[last:end]}\n")
    reads, changes = hoisting.known.behind(rest, hoisting.owner)
    needed = {n for other in core for n in other.effects.uses.reads | other.effects.reads_behind}
    changed = written_by(core) | {name for other in core for name in bound_by(other)}
    return min((changes & needed) | (reads & changed), default=None)


def _shows_code(node: ast.stmt, source: Source) -> bool:
    """Whether an f-string prints the code of a value: `f"{loss=}"`."""
    return any(
        isinstance(inner, ast.FormattedValue)
        and source.text[source.span(inner.value)[1] :].lstrip(" )")[:1] == "="
        for inner in ast.walk(node)
    )


def _unparsed(code: str) -> str:
    try:
        [statement] = parsed(f"({code}\n)").body
    except (SyntaxError, ValueError):
        return ""
    return ast.unparse(statement.value) if isinstance(statement, ast.Expr) else ""


_SETTINGS = (
    ast.Name, ast.Attribute, ast.Constant, ast.Load, ast.Compare, ast.cmpop,
    ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop,
)  # fmt: skip


class Hoisting(ast.NodeVisitor):
    """Copies to the GPU, and parts that a counter or an array of NumPy selects, are computed before
    the call."""

    def __init__(self, region: Region, step: Sorted, known: Imports, owner: str | None):
        self.edits: list[Edit] = []
        self.hoisted: dict[str, str] = {}
        core = [item for item in step.items if item.role == "core"]
        self._made = {n for item in core for n in Uses(item.nodes, owner).binds}
        self.owner, self.state = owner, step.state
        written = written_by(core)
        self._written = written.union(*(step.viewed.get(name, NOTHING) for name in written))
        self.may_fetch = True  # no forward runs in front of what is visited
        self._taken = set(region.source.names)
        self.attributes: dict[str, str] = {}
        self.values: dict[str, tuple[int, int]] = {}  # of splits
        for name in sorted(name for name in self._made if "." in name):
            others = _named_by_others(region.source.tree, core, known)
            if (
                known.functions.keys() & _methods_called(core, owner)
                or _gives_away(core, owner)
                or name.partition(".")[2] in others
            ):
                raise RefusedError("host_work", region.statements[0].node, name)
            self.attributes[self.fresh(name.partition(".")[2])] = name
        self._names = [
            node.id for item in core for part in item.nodes for node in ast.walk(part)
            if isinstance(node, ast.Name)
        ]  # fmt: skip
        loops = region.loops
        self._counters = counters(loops[0] if loops else None)
        self._names_of: dict[str, str] = {}  # of what is computed before the call, by its code
        self._conditions = Conditions()
        self._rounds = 0  # of its loops and comprehensions
        self._local = NOTHING  # the variables of the comprehensions around it
        around = region.function or (loops[-1] if loops else None)
        self._changing = NOTHING if around is None else _bound_in(around.node)
        # Properties are functions, too.
        self._unsettled = _assigned_elsewhere(region.source.tree) | known.functions.keys()
        self.source, self.known = region.source, known

    def fresh(self, name: str) -> str:
        """The name, or one like it, that the file does not use; it is used from now on."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute) and own_name(node, self.owner) in self._made:
            name = own_name(node, self.owner)
            alias = next(key for key, value in self.attributes.items() if value == name)
            self.edits.append(Edit(*self.source.span(node), alias))
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            copies = node.func.attr in COPIES
            root = root_name(node.func, None)
            copies = copies and root is not None and root not in self.known.torch
            if copies and self._is_ready(node):
                self._require_sure(node)
                self._hoist(node, node.func.value, "on_device")
                return
        if isinstance(node, ast.IfExp | ast.BoolOp):
            fetch = _fetch_in(node)
            if fetch is not None:  # before the call it would always run
                raise RefusedError("host_work", fetch, ast.unparse(fetch))
            copies = any(_is_copy(inner) for inner in ast.walk(node))
            if (copies or self._selects_in(node)) and self._is_ready(node):
                self._require_sure(node)
                self._hoist(node, ast.Name("value"), "on_device" if copies else "part")
                return
        caught = isinstance(node, ast.With) and catches(node)
        if caught or isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.Try | ast.Match):
            sure = _always(node)
            for child in ast.iter_child_nodes(node):
                with self._conditions.under("" if child is sure else self._test(node, child)):
                    self.visit(child)
            return
        if isinstance(node, COMPREHENSIONS):
            self._comprehend(node)
            return
        if isinstance(node, ast.For | ast.While):
            once = getattr(node, "iter", None)
            skips = any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(node))
            goes_on, ends = (None, None) if skips else (self._goes_on(node), "")
            for child in ast.iter_child_nodes(node):
                self._rounds += child is not once
                with self._conditions.under(goes_on if child in node.body else ends):
                    self.visit(child)
                self._rounds -= child is not once
            return
        if isinstance(node, ast.Call) and _is_fetch(node):
            again = self.source.code(node) in self._names_of  # of the same iterator
            once = not again and not self._conditions.any and not self._rounds
            if self.may_fetch and once and self._free(node.args[0]):
                self._hoist(node, ast.Name("batch"), "part")
                return
            raise RefusedError("host_work", node, ast.unparse(node))
        if isinstance(node, ast.Subscript) and self._is_ready(node) and self._selects(node):
            self._require_sure(node)
            self._hoist(node, node.value, "part")
            return
        if isinstance(node, ast.Name) and node.id in self._counters - self._made - self._local:
            raise RefusedError("changing_number", node, node.id)
        if not isinstance(node, FUNCTIONS):
            super().generic_visit(node)

    def _comprehend(self, node: ast.expr) -> None:
        """A comprehension has variables of its own."""
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        local = Uses([part.target for part in generators]).binds
        over = [part.iter for part in generators]
        copied = any(_is_copy(n) and local & Uses([n], self.owner).reads for n in ast.walk(node))
        if copied and not self._made & Uses(over, self.owner).reads:
            if isinstance(node, ast.GeneratorExp) or not self._is_ready(node):
                raise RefusedError("host_work", node, ast.unparse(node)[:80])
            self._require_sure(node)
            self._hoist(node, over[0], "on_device")
            return
        self.visit(over[0])
        outside, some = self._local, any(part.ifs for part in generators)
        self._local |= local
        self._rounds += 1
        for inner in (*over[1:], *(test for part in generators for test in part.ifs)):
            self.visit(inner)
        with self._conditions.under(None if some else self._goes_on(generators[0])):
            for name in ("key", "elt", "value"):
                if hasattr(node, name):
                    self.visit(getattr(node, name))
        self._rounds -= 1
        self._local = outside

    def _is_ready(self, node: ast.AST) -> bool:
        """Whether it is the same before the step, whose tensors it does not read."""
        return self._free(node) and not self._written & Uses([node], self.owner).reads

    def _test(self, node: ast.AST, child: ast.AST) -> str | None:
        """What decides that a branch runs, if it can be asked before the step: it only reads names,
        and settings, which nothing but constructors assigns."""
        if not isinstance(node, ast.If | ast.IfExp) or not self._is_setting(node.test):
            return None
        other = node.orelse if isinstance(node, ast.If) else [node.orelse]
        test, holds = node.test, child not in other
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        code = self.source.code(test)
        simple = isinstance(test, ast.Name | ast.Attribute) and "\n" not in code
        code = code if simple else f"({code})"
        return code if holds else f"not {code}"

    def _is_setting(self, test: ast.expr) -> bool:
        inner = list(ast.walk(test))
        read = {getattr(n, "attr", getattr(n, "id", "")) for n in inner}
        if not all(isinstance(n, _SETTINGS) for n in inner) or read & self._unsettled:
            return False
        # Behind a test that is asked in the step alone, it may fail, and what a model changes of
        # itself in its forward, the file may not show.
        ready = self._is_ready(test) and not self._conditions.unknown
        return ready and not self.state & Uses([test], self.owner).reads

    def _goes_on(self, loop: ast.For | ast.While | ast.comprehension) -> str | None:
        """What decides that the body of a loop runs at all, as `_test` says it."""
        over = getattr(loop, "iter", None)
        if not isinstance(over, ast.Call) or getattr(over.func, "id", "") != "range":
            return None
        if len(over.args) > 1:
            return None
        test = ast.Compare(over.args[0], [ast.Gt()], [ast.Constant(0)])
        if isinstance(over.args[0], ast.Constant):
            return ""
        return f"({self.source.code(over.args[0])} > 0)" if self._is_setting(test) else None

    def _require_sure(self, node: ast.expr) -> None:
        """Refuse what a branch of the step would not always compute, and what may fail then."""
        value = node.func.value if _is_copy(node) else node  # type: ignore[attr-defined]
        may_fail = (self._changing | self._unsettled) & _named(value, self.owner) or any(
            isinstance(inner, ast.Subscript) for inner in ast.walk(value)
        )
        always = self._conditions.always(self.source.code(node))
        if self._conditions.unknown and may_fail and not always:
            raise RefusedError("host_work", node, ast.unparse(node))

    def _free(self, node: ast.AST) -> bool:
        """Whether it can be computed before the step: it reads nothing of it and calls no model."""
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        plain = all(
            (isinstance(c.func, ast.Attribute) and c.func.attr in COPIES | {"long", "float"})
            or (isinstance(c.func, ast.Name) and c.func.id == "len")
            for c in calls
        )  # fmt: skip
        return plain and not Uses([node], self.owner).reads & (self._made | self._local)

    def _selects(self, node: ast.Subscript) -> bool:
        arrays = self.known.arrays & Uses([node.slice]).reads
        return bool(arrays or Uses([node]).reads & self._counters)

    def _selects_in(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Subscript) and self._selects(n) for n in ast.walk(node))

    def _hoist(self, node: ast.expr, value: ast.expr, suffix: str) -> None:
        code = self.source.code(node)
        name = self._names_of.get(code)
        if name is None:
            base = _short_name(value)
            uses = self._names.count(base)
            inside = sum(isinstance(n, ast.Name) and n.id == base for n in ast.walk(node))
            taken = base in self.hoisted or uses > inside
            name = self._names_of[code] = self.fresh(f"{base}_{suffix}") if taken else base
            self._taken.add(name)
        self.hoisted[name] = self._conditions.guarded(node, code)
        self.edits.append(Edit(*self.source.span(node), name))


def _bound_in(node: ast.AST) -> Names:
    """What a loop, or a function, binds, with its parameters."""
    body = [node] if not isinstance(node, FUNCTIONS) else getattr(node, "body", [])
    return parameters(node) | frozenset(Uses(body).binds)


def _named(node: ast.AST, owner: str | None) -> Names:
    """The variables that it reads, and the attributes."""
    attributes = (inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute))
    return frozenset(Uses([node], owner).reads).union(attributes)


def _assigned_elsewhere(tree: ast.AST) -> Names:
    """What a call may change: the names of attributes that a file assigns outside constructors, and
    the variables that a function shares."""
    found: set[str] = set()
    later = [tree]
    while later:
        node = later.pop()
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        later += [n for n in ast.iter_child_nodes(node) if getattr(n, "name", "") != "__init__"]
    return frozenset(found)


def _always(node: ast.AST) -> ast.AST | None:
    """The part of a statement or expression with branches that always runs."""
    if isinstance(node, ast.BoolOp):
        return node.values[0]
    return getattr(node, "test", getattr(node, "subject", None))


def _is_copy(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in COPIES


def _fetch_in(node: ast.AST) -> ast.AST | None:
    return next((n for n in ast.walk(node) if _is_fetch(n)), None)


def _is_fetch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "next"


def _methods_called(core: list[Item], owner: str | None) -> Names:
    """The names x of all `self.x()`, and of what may be a property."""
    return frozenset(
        inner.attr
        for item in core
        for node in item.nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load)
        if isinstance(inner.value, ast.Name) and inner.value.id == owner
    )


def _named_by_others(tree: ast.AST, core: list[Item], known: Imports) -> Names:
    """The attributes that functions of the file name which the step calls, of whatever object:
    another one may hold the object that the step is a method of."""
    nodes = [inner for item in core for node in item.nodes for inner in ast.walk(node)]
    called = {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    found = {n.attr for one in lambdas for n in ast.walk(one) if isinstance(n, ast.Attribute)}
    called -= {"step", "backward", "zero_grad"}
    return frozenset(found).union(
        *(known.named_within(name) - known.functions[name] for name in
          {*called, "forward", "__call__"} & known.functions.keys())
    )  # fmt: skip


def _gives_away(core: list[Item], owner: str | None) -> bool:
    """Whether others get the object whose attributes the step binds, or it is called itself."""
    nodes = [inner for item in core for node in item.nodes for inner in ast.walk(node)]
    named = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    return any(
        isinstance(node, ast.Name) and node.id == owner and id(node) not in named for node in nodes
    )


def _short_name(node: ast.expr) -> str:
    """`x` for `batch.x`, `ids` for `batch["ids"]`, `images` for `images[0]`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        key = node.slice
        if (
            isinstance(key, ast.Constant)
            and isinstance(key.value, str)
            and key.value.isidentifier()
            and not keyword.iskeyword(key.value)
        ):
            return key.value
        return _short_name(node.value)
    return node.id if isinstance(node, ast.Name) else "value"
