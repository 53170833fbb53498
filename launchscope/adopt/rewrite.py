"""A region becomes a function under `graphed` and a call of it; all other text stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import libcst as cst

from launchscope.adopt.calls import defines
from launchscope.adopt.definitions import Imports
from launchscope.adopt.effects import effects_of
from launchscope.adopt.fission import fission
from launchscope.adopt.fixes import fixes
from launchscope.adopt.layout import (
    DECORATOR,
    IMPORT,
    Placing,
    blanks,
    joined,
    own_line,
    with_blanks,
    without_blanks,
    wrapped,
)
from launchscope.adopt.names import (
    FUNCTIONS,
    NOTHING,
    Liveness,
    Uses,
    backward_roots,
    bound_before,
    computed_from,
    declared_outside,
    parameters,
    read_by_functions,
)
from launchscope.adopt.observe import ChangedError
from launchscope.adopt.outline import Outline, outline
from launchscope.adopt.patch import Patch, Place, Ran, Refusal
from launchscope.adopt.region import (
    LOOPS,
    Region,
    callers,
    inferring,
    marked_calls,
    parts,
    regions,
    repeats,
)
from launchscope.adopt.source import (
    Anchor,
    Block,
    RefusedError,
    Role,
    Source,
    Statement,
    anchor_of,
)
from launchscope.python_source import last_name

_WIDTH = 100
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_PARTS = 4
_LOCAL = (
    "conditional",
    "host_read",
    "host_work",
    "random_order",
    "leaves_step",
)  # of one statement


def rewrite_step(
    places: Sequence[Place], read: Callable[[Path], bytes], ran: Ran
) -> Patch | Refusal:
    """See `launchscope.adopt.patch.rewrite`."""
    file: Path | None = None
    try:
        anchor = anchor_of(places)
        file = anchor.file
        data = read(file)
        source = Source.load(file, data)
        return _patch(
            source, data, anchor,
            lambda path: source if path == anchor.file else Source.load(path, read(path)), ran,
        )  # fmt: skip
    except OSError:
        return Refusal(file, None, "no_source", None if file is None else file.name)
    except ChangedError:
        return Refusal(file, None, "changed", None if file is None else file.name)
    except RefusedError as refused:
        return refused.refusal(file)


def _patch(
    source: Source, data: bytes, anchor: Anchor, read: Callable[[Path], Source], ran: Ran
) -> Patch:
    known = Imports.of(source.tree)
    marks = marked_calls(source, anchor, known)
    _refuse_graphed(source, marks)
    calling = list(callers(anchor, read))
    again = repeats(statement for _, statements in calling for statement in statements)
    others = tuple(file.tree for file, _ in calling if file is not source)
    first: RefusedError | None = None
    also = inferring(source, anchor)
    apart = fission(source, marks, also, known)
    if apart is not None:
        with suppress(RefusedError):
            whole = next(regions(apart.source, apart.marks, again))
            whole = replace(
                whole, inferring=apart.inferring, lists=apart.lists, fetched=apart.fetched,
                callers=others,
            )  # fmt: skip
            return apart.restored(_of_region(whole, data, known, ran))
    left = [
        replace(region, inferring=also, callers=others) for region in regions(source, marks, again)
    ]
    tried = 0
    while left and tried <= _MOST_PARTS:
        region, tried = left.pop(0), tried + 1
        try:
            return _of_region(region, data, known, ran)
        except RefusedError as refused:
            first = first or refused
            if refused.reason not in _LOCAL:
                continue
            try:
                left = [*parts(region, refused.line), *left]
            except RefusedError:
                continue
    assert first is not None
    raise first


def _of_region(region: Region, data: bytes, known: Imports, ran: Ran) -> Patch:
    """With the fixes, or without where they are in the way."""
    plan = outline(region, known)
    try:
        return _Rewriting(_fixed(plan, known, ran), data, known).patch()
    except RefusedError:
        if not plan.fixes:
            raise
    return _Rewriting(outline(region, known), data, known).patch()


def _refuse_graphed(source: Source, marks: Iterable[Statement]) -> None:
    for statement in marks:
        for owner in statement.around():
            decorators = getattr(owner.node, "decorator_list", ())
            items = owner.node.items if isinstance(owner.node, ast.With) else ()
            texts = [ast.unparse(d) for d in decorators]
            texts += [ast.unparse(item.context_expr) for item in items]
            if any(text.partition("(")[0].endswith(("graphed", "cuda.graph")) for text in texts):
                raise RefusedError("already_graphed", owner.node)


class _Rewriting:
    """From an outline to the text of the file."""

    def __init__(self, plan: Outline, data: bytes, known: Imports):
        self._plan, self._data, self._known = plan, data, known
        self._before = plan.region.source
        self._source, self._roles = _edited(plan)
        region = plan.region
        self._owner = self._before.owner_of(region.function)
        # The same statements in the edited text, in which splits have added some.
        self._block = self._same_block(region.block)
        more = len(self._block.statements) - len(region.block.statements)
        self._statements = self._block.statements[region.first : region.last + 1 + more]
        self._leaves = [leaf for s in self._statements for leaf in self._sorted(s)]
        self._marked_loops = frozenset(
            node for s in self._statements for node in ast.walk(s.node)
            if isinstance(node, LOOPS)
        )  # fmt: skip

    # ------------------------------------------------------------- the statements again

    def _same_block(self, block: Block) -> Block:
        """The block of the edited text that has the same place in it."""
        owner = block.owner
        if owner is None:
            return self._source.body
        begin = self._before.span(owner.node)[0]
        earlier = (edit for edit in self._plan.edits if edit.end <= begin)
        begin += sum(len(edit.new) - (edit.end - edit.begin) for edit in earlier)
        same = next(
            s for s in self._source.statements if s.blocks and self._source.span(s.node)[0] == begin
        )
        return same.blocks[owner.blocks.index(block)]

    def _sorted(self, statement: Statement) -> list[tuple[Statement, Role, bool]]:
        """The statements that have a role, with whether they are the header of a `with`."""
        role, is_header = self._roles[self._source.span(statement.node)[0]]
        if not is_header:
            return [(statement, role, False)]
        inner = [leaf for s in statement.blocks[0].statements for leaf in self._sorted(s)]
        return [(statement, role, True), *inner]

    def _of(self, role: Role) -> list[ast.AST]:
        return [
            node
            for statement, own, is_header in self._leaves
            if own == role
            for node in (statement.node.items if is_header else [statement.node])  # type: ignore[attr-defined]
        ]

    # ------------------------------------------------------------------------ the names

    def patch(self) -> Patch:
        region, source = self._plan.region, self._source
        function = self._statements[0].function()
        body = source.tree.body if function is None else function.node.body  # type: ignore[attr-defined]
        core = Uses(self._of("core"), self._owner, self._marked_loops)
        hidden = self._known.reached(frozenset(core.reads)) & frozenset(core.binds)
        if hidden:  # a function that the step calls reads it where the step no longer binds it
            raise RefusedError("scope", self._statements[0].node, min(hidden))
        for name in core.reads | core.binds:
            private = name.rpartition(".")[2].startswith("__") or name == "super"
            if function is not None and private:
                raise RefusedError("scope", self._statements[0].node, name)
        if (looks := self._looks_at_names(body)) is not None:
            raise RefusedError("looks_up_names", looks, ast.unparse(looks.func))
        returned = self._returned(core, function, body)
        roots = backward_roots(self._of("core"), core.binds)
        if roots - core.binds:
            raise RefusedError("needs_gradient", self._statements[0].node, min(roots - core.binds))
        if returned and (again := self._differentiated_again(body)) is not None:
            raise RefusedError("graph_kept", again, returned[0])
        given = self._parameters(core, returned, function, body)
        name = "train_step" if _trains(region) else "infer_step"
        number, base = 1, name
        while name in source.names:
            number, name = number + 1, f"{base}_{number + 1}"
        if DECORATOR in source.names:
            raise RefusedError("name_taken", None, DECORATOR)
        new = self._emit(name, given, returned, function)
        first = region.statements[0].node.lineno
        last = region.statements[-1].node
        after = new.bytes
        lines = after.decode(new.encoding).splitlines()
        return Patch(
            source.file, self._data, after, name, first, last.end_lineno or last.lineno,
            region.covered, self._plan.fixes, 1 + lines.index(IMPORT),
            frozenset(core.binds) - {*returned, *self._plan.attributes}, self._reference(),
        )  # fmt: skip

    def _reference(self) -> bytes:
        edits, before = self._plan.edits_beside, self._before
        return before.applied(edits).encode(before.encoding) if edits else b""

    def _looks_at_names(self, body: Sequence[ast.stmt]) -> ast.Call | None:
        """A call in the loop, or behind it, that finds variables by their names."""
        loops = [s.node for s in self._ancestors() if isinstance(s.node, LOOPS)]
        first = (loops[-1] if loops else self._statements[0].node).lineno
        return next(
            (
                node for statement in body for node in ast.walk(statement)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                and node.func.id in ("locals", "globals", "vars", "eval", "exec")
                and not (node.func.id == "vars" and node.args) and node.lineno >= first
            ),
            None,
        )  # fmt: skip

    def _differentiated_again(self, body: Sequence[ast.stmt]) -> ast.Call | None:
        """A call that differentiates beside the step, in code that the loop or a function of the
        file runs there, if a backward of the step keeps its graph: what the step returns has none
        in a replay."""
        core = {id(part) for node in self._of("core") for part in ast.walk(node)}
        calls = list(_calls(body))
        if not any(id(call) in core and _keeps_graph(call) for call in calls):
            return None
        functions = {
            node.name: node for node in ast.walk(self._source.tree) if isinstance(node, _NAMED)
        }
        left = [call for call in calls if id(call) not in core]
        while left:
            call = left.pop()
            name = last_name(call.func)
            if name in ("grad", "backward", "register_hook"):
                return call
            if (function := functions.pop(name, None)) is not None:
                left += _calls(function.body)
        return None

    def _returned(
        self, core: Uses, function: Statement | None, body: Sequence[ast.stmt]
    ) -> list[str]:
        """What is read after the call, in the order in which the step binds it."""
        always = read_by_functions(body, self._owner)
        if function is not None:
            always |= declared_outside(function.node)
        live = Liveness(body, always, self._owner).after[self._statements[-1].node]
        for node in reversed(self._of("after")):
            found = Uses([node], self._owner)
            live = (live - found.bound) | found.exposed
        live |= frozenset(self._plan.attributes)
        live -= self._plan.region.fetched
        for node in self._of("core"):  # a function is nothing that a graph gives back
            if defines(node) and live & Uses([node], self._owner).bound:
                raise RefusedError("host_work", node, ast.unparse(node).partition("\n")[0][:80])
        return [name for name in _in_order(self._of("core"), core.binds) if name in live]

    def _parameters(
        self,
        core: Uses,
        returned: list[str],
        function: Statement | None,
        body: Sequence[ast.stmt],
    ) -> list[str]:
        """What the call passes: the names that are not the same in all calls of the function."""
        region = self._plan.region
        loops = [s for s in self._ancestors() if isinstance(s.node, LOOPS)]
        if self._is_outside:
            assert function is not None
            local = Uses(function.node.body, self._owner).binds | parameters(function.node)  # type: ignore[attr-defined]
            local |= {n.partition(".")[0] for n in core.reads if "." in n}
            changing = frozenset(local)
        else:
            changing = frozenset(Uses([loops[-1].node], self._owner).binds)
        changing |= frozenset(self._plan.hoisted) | frozenset(self._plan.attributes)
        known = NOTHING if function is None else parameters(function.node)
        bound = bound_before(body, self._statements[0].node, known, self._owner)
        bound |= frozenset(Uses(self._of("before"), self._owner).bound)
        exposed = {n.partition(".")[0] if self._is_outside else n for n in core.exposed}
        wanted = {name for name in exposed & changing if "." not in name}
        for name in returned:
            if name not in core.bound:  # as it was, if the step does not bind it
                wanted.add(name)
        for name in sorted(wanted - bound - core.needed - set(self._plan.hoisted)):
            raise RefusedError("branch_name", region.statements[0].node, name)
        return _in_order(self._of("core"), wanted)

    def _ancestors(self) -> list[Statement]:
        """The compound statements around the region within its function, innermost first."""
        owners = (block.owner for block in self._statements[0].chain())
        return [s for s in owners if s is not None and not isinstance(s.node, FUNCTIONS)]

    @property
    def _is_outside(self) -> bool:
        """Whether the new function is made once for all calls of the function around the step."""
        looped = any(isinstance(s.node, LOOPS) for s in self._ancestors())
        if self._statements[0].function() is None:
            if not looped:
                raise RefusedError("no_loop", self._statements[0].node)
            return False
        if not looped and not self._plan.region.repeats:
            raise RefusedError("no_loop", self._statements[0].node)
        return self._plan.region.repeats

    # ------------------------------------------------------------------------- the text

    def _emit(
        self, name: str, given: list[str], returned: list[str], function: Statement | None
    ) -> cst.Module:
        module = self._source.module
        values = [self._value(name) for name in returned]
        passed = self._plan.hoisted | self._plan.attributes
        arguments = [passed.get(n, n) for n in given]
        kept = [self._plan.attributes.get(n, n) for n in returned]
        depth = sum(1 for _ in self._statements[0].around())
        room = _WIDTH - len(module.default_indent.expandtabs(4)) * depth
        target = f"{', '.join(kept)} = " if returned else ""
        call = wrapped(f"{target}{name}(", arguments, ")", room, module.default_indent)
        head = wrapped(f"def {name}(", given, "):", room, module.default_indent)
        text = f"@{DECORATOR}\n{head}\n{module.default_indent}pass\n"
        config = module.config_for_parsing
        definition = cst.parse_statement(text, config)
        assert isinstance(definition, cst.FunctionDef)
        lines = self._lines("core")
        if values:
            lines.append(cst.parse_statement(f"return {', '.join(values)}\n", config))
        definition = definition.with_changes(body=cst.IndentedBlock(body=lines))
        calling = cst.parse_statement(call + "\n", config)
        around = self._new_block(calling)
        anchor = self._anchor(function)
        return Placing(self._block.holder, around, anchor, definition, config).of(module)

    @cached_property
    def _losses(self) -> dict[str, bool]:
        """What is returned without its graph; whether it may be a number, or None, instead of a
        tensor, because a branch binds it."""
        core = self._of("core")
        uses = Uses(core, self._owner, self._marked_loops)
        losses = backward_roots(core, uses.binds)
        losses |= computed_from(core, losses)
        plain = {
            target.id
            for node in core
            for inner in ast.walk(node)
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant)
            for target in inner.targets
            if isinstance(target, ast.Name)
        }
        return {name: name in plain or name not in uses.bound for name in losses}

    def _value(self, name: str) -> str:
        if not self._losses.get(name, False):
            return f"{name}.detach()" if name in self._losses else name
        if "torch" not in self._known.torch:
            raise RefusedError("branch_name", self._statements[0].node, name)
        return f"{name}.detach() if torch.is_tensor({name}) else {name}"

    def _lines(self, role: Role) -> list[cst.BaseStatement]:
        """The statements of a role, in their lines."""
        found: list[cst.BaseStatement] = []
        for statement in self._statements:
            found += self._line_of(statement, role)
        if found:
            found[0] = without_blanks(found[0]) if role == "core" else found[0]
        return found

    def _line_of(self, statement: Statement, role: Role) -> list[cst.BaseStatement]:
        own, is_header = self._roles[self._source.span(statement.node)[0]]
        if is_header:
            inner = [
                line for s in statement.blocks[0].statements for line in self._line_of(s, role)
            ]
            if role != "core" or not inner:
                return inner
            holder = statement.blocks[0].holder
            unit = statement.unit
            if isinstance(holder, cst.IndentedBlock):
                return [unit.with_changes(body=holder.with_changes(body=inner))]  # type: ignore[list-item]
            return [unit.with_changes(body=cst.IndentedBlock(body=inner))]  # type: ignore[list-item]
        return [own_line(statement)] if own == role else []

    def _new_block(self, call: cst.BaseStatement) -> cst.IndentedBlock | cst.Module:
        """The block of the region with the call in place of the step."""
        first, last = self._statements[0], self._statements[-1]
        index = self._block.statements.index(first)
        before = self._block.statements[:index]
        after = self._block.statements[self._block.statements.index(last) + 1 :]
        middle = [*self._lines("before"), call, *self._lines("after")]
        middle[0] = with_blanks(middle[0], blanks(first.line))
        body = [*joined(before), *middle, *joined(after)]
        holder = self._block.holder
        if isinstance(holder, cst.SimpleStatementSuite):
            return cst.IndentedBlock(body=body)
        assert isinstance(holder, cst.IndentedBlock | cst.Module)
        return holder.with_changes(body=body)

    def _anchor(self, function: Statement | None) -> cst.CSTNode:
        """The statement in front of which the new function goes."""
        if not self._is_outside:
            return [s for s in self._ancestors() if isinstance(s.node, LOOPS)][-1].unit
        assert function is not None
        found = function
        while found.block.owner is not None and isinstance(found.block.owner.node, ast.ClassDef):
            found = found.block.owner
        return found.unit


def _trains(region: Region) -> bool:
    return region.covered != "forward"


def _fixed(plan: Outline, known: Imports, ran: Ran) -> Outline:
    """With the fixes that touch nothing that the outline changes."""
    schedules = any(
        effects_of(s.node, NOTHING, NOTHING, known, None).schedule
        for s in plan.region.source.statements
    )
    for change in fixes(plan.region, schedules, ran):
        overlaps = any(
            ours.begin <= other.end
            and other.begin <= ours.end
            and not ours.begin == ours.end == other.begin == other.end  # two lines after one
            for ours in change.edits
            for other in plan.edits
        )
        if not overlaps:
            plan.edits += change.edits
            plan.fixes += ((change.key, change.line),)
            plan.edits_beside += change.edits
    return plan


def _edited(plan: Outline) -> tuple[Source, dict[int, tuple[Role, bool]]]:
    """The source after the edits; the role of each statement of the region by its new offset, and
    whether it is the header of a `with`."""
    source = plan.region.source
    roles = {source.span(i.statement.node)[0]: (i.role, i.is_header) for i in plan.items}
    edits = sorted(plan.edits, key=lambda edit: (edit.begin, edit.end))
    moved: dict[int, tuple[Role, bool]] = {}
    shift, waiting = 0, sorted(roles)
    for edit in edits:
        while waiting and waiting[0] < edit.begin + (not edit.roles):
            begin = waiting.pop(0)
            moved[begin + shift] = roles[begin]
        for offset, role in edit.roles:
            moved[edit.begin + shift + offset] = role, False
        if edit.roles and waiting and waiting[0] == edit.begin:
            waiting.pop(0)
        shift += len(edit.new) - (edit.end - edit.begin)
    for begin in waiting:
        moved[begin + shift] = roles[begin]
    return Source(source.file, source.applied(edits), source.encoding), moved


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Those that statements make, without those in functions and classes that they define."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, (*_NAMED, ast.ClassDef)):
            yield from _calls(ast.iter_child_nodes(node))


def _keeps_graph(call: ast.Call) -> bool:
    """Whether a backward leaves what it went through."""
    return any(
        keyword.arg in ("retain_graph", "create_graph")
        and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        for keyword in call.keywords
    )


def _in_order(nodes: Iterable[ast.AST], wanted: Iterable[str]) -> list[str]:
    """The names in the order in which they first occur."""
    left, found = set(wanted), []
    for node in nodes:
        inner = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in left]
        for name in sorted(inner, key=lambda n: (n.lineno, n.col_offset)):
            if name.id in left:
                left.remove(name.id)
                found.append(name.id)
    return [*found, *sorted(left)]
