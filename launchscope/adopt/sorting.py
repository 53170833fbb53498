"""Which statements of a region go into the graphed function, which stay before or behind its call.

Only statements that must run on the host in each iteration are moved, and only across others that
they have nothing to do with. All others keep their order inside the function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from launchscope.adopt.calls import Calls, defines, read_by_definition
from launchscope.adopt.definitions import COPIES, LOGGING, OF_MODULES, Imports, names_rates, sends
from launchscope.adopt.effects import (
    HOST_READS,
    Effects,
    calls_one_of,
    effects_of,
    keyword_of,
    may_exit,
    only_computes,
    rebound_by,
    state_reads,
)
from launchscope.adopt.memory import BUILTIN, parts, viewed, views
from launchscope.adopt.names import NOTHING, Names, Uses, root_name
from launchscope.adopt.patch import RefusalReason
from launchscope.adopt.region import LOOPS, Region, counters, own_calls
from launchscope.adopt.sharing import own_lists
from launchscope.adopt.source import RefusedError, Role, Statement
from launchscope.adopt.splits import PLAIN, can_split
from launchscope.model import StepCallKind as Call
from launchscope.python_source import last_name

_OF_STATE = frozenset(("zero_grad", "step", "unscale_", "scale", "update", "backward"))
# Functions and methods that autocast leaves as they are.
_SAME_IN_ANY = HOST_READS | LOGGING | frozenset((
    "print", "float", "int", "bool", "str", "len", "round", "format", "detach", "clone", "argmax",
    "eq", "ne", "size", "numel", "dim", "max", "min", "mean", "update", "view", "squeeze",
    "abs", "range", "zip", "enumerate", "items", "values", "keys", "get", "step", "get_last_lr",
    "state_dict", "isfinite", "isnan", "dict", "list", "time", "perf_counter",
))  # fmt: skip
# What only reads and shows values does the same behind these as in them.
_OPEN_CONTEXTS = frozenset((
    "autocast", "no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "nullcontext",
    "no_sync", "accumulate", "record_function", "sdpa_kernel", "set_detect_anomaly", "profile",
    "detect_anomaly", "stream", "device",
))  # fmt: skip


@dataclass(eq=False)
class Item:
    """A statement of the region, or the header of a `with` whose statements are items, too."""

    statement: Statement
    calls: frozenset[Call]
    within: tuple[Statement, ...]  # such `with` statements, outermost first
    is_header: bool
    effects: Effects = field(init=False)
    role: Role = "core"
    splits: bool = False  # its value is computed in the function and read behind the call

    @property
    def nodes(self) -> list[ast.AST]:
        node = self.statement.node
        return [*node.items] if self.is_header else [node]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Sorted:
    """The statements of a region with their roles, and what they are about."""

    items: list[Item]
    state: Names  # the variables that hold the model and what else the step changes
    viewed: dict[str, Names]  # for each variable, those whose memory it may share


def sorted_items(region: Region, known: Imports, owner: str | None) -> Sorted:
    """Raises RefusedError where it is not safe to give the statements roles."""
    items = _items(region)
    state = region_state(items, region, owner, known)
    viewed = views([node for item in items for node in item.nodes], region, state, known, owner)
    found = Sorted(items, state, viewed)
    _Sorting(found, known, owner, region).run()
    return found


def _items(region: Region) -> list[Item]:
    found: list[Item] = []

    def add(statement: Statement, within: tuple[Statement, ...]) -> None:
        calls = region.calls_in(statement)
        split = isinstance(statement.node, ast.With) and calls and statement.blocks
        found.append(Item(statement, calls, within, bool(split)))
        if split:
            for inner in statement.blocks[0].statements:
                add(inner, (*within, statement))

    for statement in region.statements:
        add(statement, ())
    return found


def region_state(items: list[Item], region: Region, owner: str | None, known: Imports) -> Names:
    """The variables that hold what the step reads and changes: model, optimizer, scaler, loss
    function."""
    found: set[str] = set()
    made = {name for item in items for name in Uses(item.nodes, owner).binds}
    for statement in {s: None for i in items for s in i.statement.walk()}:
        for node in own_calls(statement.node):
            root = root_name(node.func, owner)
            of_state = getattr(node.func, "attr", "") in _OF_STATE
            of_state = of_state or "clip_grad" in ast.unparse(node.func)
            if statement in region.marks and root is not None:
                found |= {root} - BUILTIN - known.computing
            if statement in region.marks and of_state:
                arguments = (root_name(argument, owner) for argument in node.args)
                found |= {name for name in arguments if name}
    return frozenset(found - made)


class _Sorting:
    """Gives each item its role."""

    def __init__(self, step: Sorted, known: Imports, owner: str | None, region: Region):
        self._items, self._state, self._known = step.items, step.state, known
        self._owner, self._region = owner, region
        self._parts = parts(region, step.state, known, owner)
        self._calls = Calls(region.source.tree, known)
        self._lists = own_lists(region.source.tree, known.modules)
        self._viewed = step.viewed | {
            name: step.viewed.get(name, NOTHING) | self._parts for name in step.state
        }

    def run(self) -> None:
        made: frozenset[str] = frozenset()
        pending: list[Item] = []
        for index, item in enumerate(self._items):
            own = frozenset(Uses(item.nodes, self._owner).binds)
            node = item.statement.node
            around = made | own if item.calls else made
            item.effects = effects_of(node, around, self._state, self._known, self._owner)
            if defines(node) and not item.calls:
                item.effects = self._of_definition(node, item.effects.scopes)
                pending.append(item)
                made |= own
                continue
            if item.effects.host:
                item.effects.draws = item.effects.draws and not self._calls.draw_nothing(node)
                item.effects.unknown = item.effects.unknown and not self._calls.only_show(node)
            if any(s in self._region.inferring for s in item.statement.walk()):
                item.effects.unknown, item.effects.fetch = True, False
            if item.is_header:
                item.effects = Effects(Uses(item.nodes, self._owner))
            elif item.calls:
                if "forward" in item.calls:  # what modules read of what is around them
                    item.effects.reads_behind |= self._known.reached(NOTHING)
                    item.effects.changes_behind |= self._known.changed_by_modules()
                if "forward" in item.calls and self._known.layers_write:
                    item.effects.changes |= made & _passed(node)
                if "forward" in item.calls and "forward" in self._known.writers:
                    item.effects.changes |= _passed(node)
                self._check(item, made | own)
            elif self._sort(item, self._items[:index]):
                item.role = "before"
                continue
            elif item.effects.given and (
                item.effects.reads_behind & (made | self._state)
                or self._is_of_batch(item, made, pending)
            ):
                item.effects.host = item.effects.fetch = False  # it is part of the step
                item.effects.unknown = True
            elif item.effects.host or item.effects.copies or self._follows(item, pending):
                pending.append(item)
            made |= own
        for item in reversed(pending):
            self._move(item)
        if self._may_be_caught():
            self._keep_order()
        elif any(_tidies(node) for tree in self._region.files for node in ast.walk(tree)):
            self._keep_order(may_exit)  # it would save what the step has made of the model
        for item in self._items:
            if item.role == "core" and item.effects.scopes is not None:
                scopes = item.effects.scopes
                raise RefusedError("scope", scopes, rebound_by(scopes))

    def _of_definition(self, node: ast.stmt, scopes: ast.AST | None) -> Effects:
        """What the function reads and changes, it does where it is called."""
        found = Effects(Uses(read_by_definition(node), self._owner), scopes=scopes)
        bound = Uses([node], self._owner).bound
        found.uses.binds |= bound
        found.uses.bound |= bound
        return found

    def _stays(self, item: Item, later: list[Item]) -> bool:
        """Whether the step calls a function that it defines. Raises RefusedError where that does
        what no graph can."""
        node, names = item.statement.node, item.effects.uses.binds
        if not any(o.role == "core" and names & o.effects.uses.reads for o in later):
            return False
        made = frozenset(name for other in self._items for name in bound_by(other))
        body = effects_of(node, made, self._state, self._known, self._owner)
        if body.host or body.copies:
            at = body.read or node
            reason: RefusalReason = "host_work" if body.read is None else "host_read"
            raise RefusedError(reason, at, ast.unparse(at).partition("\n")[0][:80])
        item.effects.uses = Uses([node], self._owner)
        return True

    def _follows(self, item: Item, pending: list[Item]) -> bool:
        """Whether it only puts together what such host statements have changed or read: `line =
        ", ".join(history)`."""
        if not isinstance(item.statement.node, ast.Assign) or item.effects.changes:
            return False
        if is_plain(item, self._state) and self._may_show(item, pending):
            item.effects.host = True
            return True
        reads = state_reads(item.statement.node, self._owner) | item.effects.reads_behind
        host = [other for other in pending if other.effects.host]
        changed = {name for other in host for name in other.effects.changes | bound_by(other)}
        changed |= {name for one in tuple(changed) for name in self._viewed.get(one, NOTHING)}
        item.effects.host = bool(reads & changed - self._state)
        return item.effects.host

    def _may_show(self, item: Item, others: Iterable[Item]) -> bool:
        """Whether it looks into an object from around the step that such a host statement may have
        changed, in whatever way."""
        node, loops = item.statement.node, self._region.loops
        deep = (ast.Attribute, ast.Subscript, ast.Call)
        if not any(isinstance(inner, deep) for inner in ast.walk(node)):
            return False
        made = {name for other in self._items for name in bound_by(other)}
        batch = Uses([loops[0].node.target], self._owner).binds if (
            loops and isinstance(loops[0].node, ast.For)
        ) else set()  # fmt: skip
        if not item.effects.uses.reads - made - batch - BUILTIN - PLAIN - self._known.computing:
            return False
        return self._change_others(others)

    def _change_others(self, others: Iterable[Item]) -> bool:
        """Whether such a host statement may change objects that it does not name."""
        made = {name for item in self._items for name in bound_by(item)}
        computing = self._known.computing | self._lists | made
        return any(
            other.role != "before"
            and other.effects.host
            and _may_change(other.statement.node, computing)
            for other in others
        )

    def _is_of_batch(self, item: Item, others: Names, pending: list[Item]) -> bool:
        """Whether it computes with what the iteration gets in front of it: `a = a / a.std()` behind
        `a = rows[at]`. `others` are the names that the call binds, or what comes behind it."""
        node, loops = item.statement.node, self._region.loops
        around = loops[0] if loops else self._region.function
        given = {
            inner.id for inner in (ast.walk(around.node) if around else ())
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
            and inner.lineno < node.lineno
        }  # fmt: skip
        return (
            item.effects.host
            and not item.effects.reads_behind
            and only_computes(node, given - others, self._known)
            and not self._change_others(pending)
        )

    def _may_be_caught(self) -> bool:
        """Whether the loop goes on after an error in the step."""
        for statement in self._region.statements[0].around():
            if isinstance(statement.node, LOOPS):
                return False
            if catches(statement.node):
                return True
        function = getattr(self._region.function, "node", None)
        return any(
            catches(node) and calls_one_of(ast.Module(node.body, []), frozenset((function.name,)))
            for tree in self._region.files
            for node in ast.walk(tree)
            if isinstance(function, ast.FunctionDef) and isinstance(node, ast.Try | ast.With)
        )

    def _keep_order(self, those: Callable[[ast.stmt], bool] = lambda node: True) -> None:
        """Refuse what would run, or not, where an error is caught that the step has raised."""
        for index, item in enumerate(self._items):
            if not those(item.statement.node):
                continue
            others = {"after": self._items[index + 1 :], "before": self._items[:index]}
            across = [other for other in others.get(item.role, ()) if other.role == "core"]
            if any(other.calls != {"zero_grad"} for other in across):
                node = item.statement.node
                raise RefusedError("host_work", node, ast.unparse(node).partition("\n")[0][:80])

    def _sort(self, item: Item, earlier: list[Item]) -> bool:
        """Whether the item goes before the call."""
        effects = item.effects
        if effects.leaves is not None:
            raise RefusedError("leaves_step", effects.leaves, keyword_of(effects.leaves))
        plain = is_plain(item, self._state) and not self._may_show(item, earlier)
        if not (effects.fetch or effects.copies or plain):
            return False
        return not self._conflict(item, [e for e in earlier if e.role != "before"])

    def _move(self, item: Item) -> None:
        """Behind the call, or else before it."""
        index, definition = self._items.index(item), defines(item.statement.node)
        if definition and self._stays(item, self._items[index + 1 :]):
            return
        for header in item.within:
            contexts = [part.context_expr for part in header.node.items]  # type: ignore[attr-defined]
            computes = _computes(item.statement.node, self._known)
            for context in contexts:
                if computes or not _is_open(context, self._region.source.tree):
                    raise RefusedError("host_work", item.statement.node, ast.unparse(context)[:80])
        later = [other for other in self._items[index + 1 :] if other.role == "core"]
        problem = self._conflict(item, later)
        cleared = any("zero_grad" in other.calls for other in later) and self._may_see_grads(item)
        if not cleared and (
            not problem or (not definition and self._is_snapshot(item, later, problem))
        ):
            item.role = "after"
            return
        earlier = [other for other in self._items[:index] if other.role != "before"]
        with_grads = cleared and any("backward" in other.calls for other in earlier)
        if not with_grads and not self._conflict(item, earlier):
            item.role = "before"
            return
        node = item.statement.node
        needed = {name for other in later for name in other.effects.uses.reads}
        changed = item.effects.uses.binds | item.effects.changes
        made = {name for other in earlier if other.role == "core" for name in bound_by(other)}
        if can_split(node, item.effects, problem, made, self._owner) and not changed & needed:
            item.splits = True
            return
        if item.effects.copies and not (item.effects.host or item.effects.fetch):
            return  # the copy alone is computed before the call
        at = item.effects.read or node
        reason: RefusalReason = "host_read" if item.effects.read is not None else "host_work"
        if item.effects.draws and "" in self._conflict(item, earlier):
            reason = "random_order"
        raise RefusedError(reason, at, ast.unparse(at).partition("\n")[0][:80])

    def _is_snapshot(self, item: Item, later: list[Item], problem: set[str]) -> bool:
        """Whether only names are in the way that the step binds again, after they were read."""
        changed = item.effects.changes | item.effects.changes_behind
        if problem & (item.effects.uses.binds | changed):
            return False
        if problem & item.effects.reads_behind:  # under their own names
            return False
        bound = {name for other in later for name in bound_by(other)}
        if problem & written_by(later) - _read_now(item.statement.node):
            return False
        return bool(problem) and problem <= bound

    def _may_see_grads(self, item: Item) -> bool:
        """Whether it hands the model to code that may read its gradients, or calls what has it: a
        part of it, or a method of the object that the step is a method of."""
        node, seen = item.statement.node, self._state | self._parts
        having = self._parts | {f"{self._owner}.{name}" for name in self._known.functions}
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        return (
            item.effects.opaque
            or _hands_over(node, seen, self._state, self._known)
            or any(root_name(call.func, self._owner) in having for call in calls)
        )

    def _conflict(self, item: Item, others: Iterable[Item]) -> set[str]:
        return conflict(item, others, self._state, self._viewed, self._known, self._owner)

    def _check(self, item: Item, made: Names) -> None:
        """That what makes the calls of the step can be in a graph as it is."""
        node, effects = item.statement.node, item.effects
        if effects.leaves is not None and not isinstance(node, ast.Return):
            raise RefusedError("leaves_step", effects.leaves, keyword_of(effects.leaves))
        if isinstance(node, ast.If):
            loops = self._region.loops
            changing = counters(loops[0] if loops else None)
            if changing & Uses([node.test], self._owner).reads:
                raise RefusedError("conditional", node, ast.unparse(node.test))
        if not item.statement.blocks:
            return
        for inner in item.statement.walk():
            parts: list[ast.stmt] = [inner.node]
            if inner.blocks:
                parts = [ast.copy_location(ast.Expr(e), e) for e in _header(inner.node)]
                if isinstance(inner.node, ast.For) and not _is_range(
                    inner.node.iter, made | self._region.lists
                ):
                    raise RefusedError("host_work", inner.node, ast.unparse(inner.node.iter))
            for part in parts:
                own = effects_of(part, made, self._state, self._known, self._owner)
                if isinstance(inner.node, ast.If | ast.While) and inner.blocks:
                    own = effects_of(inner.node, made, self._state, self._known, self._owner)
                    own.host = own.read is getattr(inner.node, "test", None)
                hoisted = own.copies and not own.fetch and not own.uses.reads & made
                if own.host or (own.copies and not hoisted):
                    at = own.read or inner.node
                    reason: RefusalReason = "host_read" if own.read is not None else "host_work"
                    raise RefusedError(reason, at, ast.unparse(at).partition("\n")[0][:80])


def conflict(
    item: Item,
    others: Iterable[Item],
    state: Names,
    viewed: dict[str, Names],
    known: Imports,
    owner: str | None,
) -> set[str]:
    """The names for which the item cannot move across others; {""} for what has no name."""
    found: set[str] = set()
    own = item.effects
    reads = state_reads(item.statement.node, owner) | own.reads_behind
    own_in_place = own.uses.binds if isinstance(item.statement.node, ast.AugAssign) else NOTHING
    weighs = any(getattr(n, "attr", "") in OF_MODULES for n in ast.walk(item.statement.node))
    for other in others:
        theirs = other.effects
        everything = theirs.uses.reads | theirs.uses.binds | theirs.changes
        changed = theirs.changes | theirs.changes_behind
        in_place = isinstance(other.statement.node, ast.AugAssign) and theirs.uses.binds
        only_clears = other.calls == {"zero_grad"} and not own.reads_behind & state
        if other.calls and not (only_clears and not _names_grad(item.statement.node)):
            changed |= state
        for name in changed | (in_place or set()):
            changed |= viewed.get(name, NOTHING)
        if own.schedule:
            found |= {""} if "step" in other.calls or theirs.schedule else set()
            changed -= state if not own.unknown else NOTHING
        for schedules, seeing in ((own, other), (theirs, item)):
            if schedules.schedule and _sees_rates(seeing.statement.node, state, known):
                found.add("")
        found |= own.uses.binds & (theirs.uses.reads | theirs.uses.binds | theirs.reads_behind)
        for name in own.changes | own.changes_behind | own_in_place:
            same = {name} | viewed.get(name, NOTHING) - state
            if same & (everything | theirs.reads_behind):
                found |= {name} | same & everything
        found |= reads & (theirs.uses.binds | changed)
        if own.unknown and not own.fetch and other.calls and not only_clears:
            found.add("")
        if own.ordered & theirs.ordered:
            found.add("")
        if other.calls & {"backward", "zero_grad"} and _names_grad(item.statement.node):
            found.add("")
        if own.opaque and other.calls & {"forward", "backward", "step"}:
            found.add("")
        if (own.guards or weighs) and "step" in other.calls:
            found.add("")
        apart = own.fetch and _goes_to_device(item.statement.node, known)
        if own.draws and not apart and ("forward" in other.calls or theirs.draws):
            found.add("")
    return found


def is_plain(item: Item, state: Names) -> bool:
    """An assignment that only looks at sizes, or detaches: cheap, and the same before the call."""
    node, effects = item.statement.node, item.effects
    if not isinstance(node, ast.Assign) or effects.uses.reads & state or effects.changes:
        return False
    if isinstance(node.value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp):
        return False  # which the step may fill
    calls = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return not effects.read and all(last_name(function) in PLAIN for function in calls)


def _header(node: ast.stmt) -> list[ast.expr]:
    """The expressions of a compound statement beside the statements in it."""
    found = [getattr(node, name, None) for name in ("test", "iter", "subject")]
    found += [item.context_expr for item in getattr(node, "items", ())]
    return [expression for expression in found if isinstance(expression, ast.expr)]


def _is_range(node: ast.expr, made: Names) -> bool:
    """Whether a loop goes over numbers, or over what the step has made: no data is fetched."""
    function = getattr(node, "func", None)
    if isinstance(node, ast.Call) and getattr(function, "id", "") == "zip":
        return all(_is_range(argument, made) for argument in node.args)
    if getattr(function, "id", "") == "range" or getattr(function, "attr", "") == "parameters":
        return True
    return bool(Uses([node]).reads & made)


def _passed(node: ast.AST) -> Names:
    """The variables that it calls something with."""
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    calls = [call for call in calls if last_name(call.func) not in COPIES]
    given = [a for call in calls for a in (*call.args, *(k.value for k in call.keywords))]
    return frozenset(name for a in given if (name := viewed(a, None)) is not None)


def _computes(node: ast.AST, known: Imports) -> bool:
    """Whether a statement may round otherwise outside of autocast: it does more than to compare, to
    look for the largest, and to read and keep values."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.MatMult):
            return True
        if not isinstance(inner, ast.Call):
            continue
        counts = last_name(inner.func) == "sum" and isinstance(inner.func, ast.Attribute)
        if counts and isinstance(inner.func.value, ast.Compare):  # type: ignore[attr-defined]
            continue
        if last_name(inner.func) not in _SAME_IN_ANY or root_name(inner.func, None) in known.torch:
            return True
    return False


def _may_change(node: ast.AST, computing: Set[str]) -> bool:
    """Whether a statement may change an object that it does not name: it stores to one, or calls,
    also with an operator, anything but torch or a method of what the step has made, or of a list of
    its own, as `computing` names them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript | ast.Attribute) and isinstance(inner.ctx, ast.Store):
            return True
        if isinstance(inner, ast.BinOp) and any(
            isinstance(side, ast.Name) and side.id not in computing
            for side in (inner.left, inner.right)
        ):
            return True
        if isinstance(inner, ast.Call):
            base: ast.expr = inner.func
            while isinstance(base, ast.Attribute | ast.Subscript | ast.Call):
                base = base.func if isinstance(base, ast.Call) else base.value
            names = isinstance(base, ast.Name)
            is_method = not names or not isinstance(inner.func, ast.Name)
            if names and not (is_method and base.id in computing):  # type: ignore[attr-defined]
                return True
    return False


def catches(node: ast.AST) -> bool:
    """Whether the script goes on behind a statement where an error is raised in it."""
    if isinstance(node, ast.Try):
        types = [ast.unparse(handler.type) for handler in node.handlers if handler.type]
        return bool(node.handlers) and types != ["KeyboardInterrupt"]
    contexts = [part.context_expr for part in getattr(node, "items", ())]
    return any(last_name(getattr(context, "func", context)) == "suppress" for context in contexts)


def _tidies(node: ast.AST) -> bool:
    """Whether it does something when the script ends, wherever that is."""
    if isinstance(node, ast.Try):
        imports = isinstance(node.body[0], ast.Import | ast.ImportFrom)
        return bool(node.finalbody) or (bool(node.handlers) and not imports)
    if isinstance(node, ast.FunctionDef):  # of an object that is around the loop, or left with it
        return node.name in ("__exit__", "__del__")
    if isinstance(node, ast.ImportFrom):
        return node.module in ("atexit", "weakref")
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        "atexit.register", "weakref.finalize",
    )  # fmt: skip


def _is_open(context: ast.expr, tree: ast.Module) -> bool:
    """Whether what only reads and shows values does the same behind a context as in it."""
    if isinstance(context, ast.Call):
        return last_name(context.func) in _OPEN_CONTEXTS
    name = ast.unparse(context)
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets)
    ]
    made = [
        part.func
        for value in values
        for part in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
        if isinstance(part, ast.Call)
    ]
    return bool(made) and all(last_name(function) in _OPEN_CONTEXTS for function in made)


def _names_grad(node: ast.AST) -> bool:
    return any(
        getattr(n, "attr", "") == "grad"
        or (isinstance(n, ast.Call) and "grad" in last_name(n.func) and "norm" in last_name(n.func))
        for n in ast.walk(node)
    )


def _sees_rates(node: ast.stmt, state: Names, known: Imports) -> bool:
    """Whether it names the settings of an optimizer, asks a scheduler, or hands an optimizer to a
    function of the person's."""
    return (
        names_rates(node, known.rates)
        or calls_one_of(node, known.seeing | known.setting | {"get_last_lr", "get_lr"})
        or any(
            known.is_scheduler(call.func.value)
            for call in own_calls(node)
            if isinstance(call.func, ast.Attribute)
        )
        or _hands_over(node, state, state, known)
    )


def _hands_over(node: ast.AST, what: Names, state: Names, known: Imports) -> bool:
    """Whether it calls something with one of these variables, beside torch and the state itself."""
    return any(
        isinstance(n, ast.Call)
        and any(getattr(argument, "id", "") in what for argument in n.args)
        and root_name(n.func, None) not in state | known.computing
        for n in ast.walk(node)
    )


def _goes_to_device(node: ast.AST, known: Imports) -> bool:
    """Whether what was drawn on the host is sent to a device, which has a generator of its own:
    here, or in a function of the file."""
    return sends(node) or any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in known.senders
        for n in ast.walk(node)
    )


def bound_by(item: Item) -> Names:
    return frozenset(Uses([item.statement.node]).bound)


def written_by(items: Iterable[Item]) -> Names:
    """The names whose values they change in place."""
    found: set[str] = set()
    for item in items:
        in_place = isinstance(item.statement.node, ast.AugAssign)
        found |= item.effects.changes | (bound_by(item) if in_place else NOTHING)
    return frozenset(found)


def _read_now(node: ast.AST) -> Names:
    """The names that a statement uses for nothing but a value on the host, which no later change of
    a tensor reaches: `loss` in `loss.detach().item()`."""
    reads = [
        inner.func.value for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in HOST_READS and viewed(inner.func.value, None)
    ]  # fmt: skip
    inside = {id(part) for value in reads for part in ast.walk(value)}
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    kept = {n.id for n in names if id(n) not in inside}
    return frozenset(n.id for n in names) - kept
