"""A region becomes a function under `graphed` and a call of it; all other lines stay."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TypeVar

from launchscope.adopt.branches import split_branches
from launchscope.adopt.fixes import Change, optimizer_flags, unchecked_distributions
from launchscope.adopt.layout import DECORATOR, IMPORT, import_line, spaced, wrapped
from launchscope.adopt.marks import Marked, marked_at
from launchscope.adopt.micro_steps import split_loop
from launchscope.adopt.mirror import Mirror
from launchscope.adopt.names import (
    NOTHING,
    Names,
    Uses,
    declared_outside,
    parameters,
    read_by_functions,
)
from launchscope.adopt.observation import Cause, Observation, SeenLine
from launchscope.adopt.patch import Patch, RefusedError
from launchscope.adopt.region import Marks, Region, marked_calls, region_of, regions, repeats
from launchscope.adopt.roles import begun, extended, items_of, sort_items
from launchscope.adopt.selections import Selections
from launchscope.adopt.shared_lines import split_shared
from launchscope.adopt.source import LOOPS, Source, anchor_of, first_line
from launchscope.adopt.split_source import SplitSource
from launchscope.model import Recording, StepCall

Line = TypeVar("Line", SeenLine, Cause)


@dataclass(frozen=True)
class Step:
    """The statements that make the calls of a step. `marked`: a copy of the file that says where an
    iteration begins."""

    source: Source
    marks: Marks
    repeats: bool
    marked: Marked

    @property
    def trains(self) -> bool:
        return any("backward" in calls for calls in self.marks.values())

    def unmarked(self, seen: Iterable[SeenLine]) -> Iterator[SeenLine]:
        """Lines of the marked copy as those of the source."""
        mark = self.marked.inserted

        def unmarked(found: Line) -> Line:
            return replace(found, line=found.line - (0 < mark < found.line))

        for record in seen:
            if record.line != mark:
                causes = (cause if cause.file else unmarked(cause) for cause in record.causes)
                yield replace(unmarked(record), causes=tuple(causes))

    def at(self, file: Path) -> Step:
        """The same one in a file elsewhere."""
        source = copy.copy(self.source)
        source.file = file
        return replace(self, source=source)


def step_of(recording: Recording, mirror: Mirror) -> Step:
    """Where the step of a run is, which was recorded in a copy of the project. Raises
    RefusedError."""
    calls = () if recording.step is None else recording.step.calls
    try:
        found = find_step([located(call, mirror.folder) for call in calls], Path.read_bytes)
    except RefusedError as refused:
        if refused.file is not None and refused.file.is_relative_to(mirror.root):
            refused.file = mirror.original(refused.file)
        raise
    file = found.source.file
    if not file.is_relative_to(mirror.root):
        raise RefusedError("outside_project", None, str(file))
    return found.at(mirror.original(file))


def located(call: StepCall, folder: Path) -> StepCall:
    """With absolute paths, of a call that was recorded in a folder."""
    frames = (f if f.file.startswith("<") else replace(f, file=str(folder / f.file))
              for f in call.frames)  # fmt: skip
    return replace(call, frames=tuple(frames))


def find_step(calls: Sequence[StepCall], read: Callable[[Path], bytes]) -> Step:
    """Where the step is that made these calls, which have absolute paths. `read` gives the bytes of
    a file, or raises OSError. Raises RefusedError."""
    anchor = anchor_of(calls)
    try:
        source = Source.load(anchor.file, read(anchor.file))
        again = repeats(anchor, lambda path: Source.load(path, read(path)))
        marks = marked_calls(source, anchor)
        region = region_of(source, marks, "step", again)
        marked = marked_at(source.encoded(source.text), region.statements[0].lineno)
        assert marked is not None  # a loop or a function is around a region
        return Step(source, marks, again, marked)
    except OSError:
        raise RefusedError("no_source", None, anchor.file.name, file=anchor.file) from None
    except RefusedError as refused:
        refused.file = refused.file or anchor.file
        raise


def rewrite(step: Step, seen: Observation, *, moves: bool = True) -> Patch:
    """Move the step into a graphed function, as its lines were seen to allow. `moves`: what only
    binds names leaves the step where it can. Raises RefusedError."""
    seen = replace(seen, lines=tuple(step.unmarked(seen.lines)))
    for split in (split_loop, split_branches, split_shared):
        if (apart := split(step.source, step.marks, seen)) is not None:
            with suppress(RefusedError):
                return _of_split(step, apart)
    first: RefusedError | None = None
    for region, extends in product(regions(step.source, step.marks, step.repeats), (True, False)):
        try:
            return _Rewriting(region, step, seen, moves=moves, extends=extends).patch()
        except RefusedError as refused:
            first = first or refused
    assert first is not None  # `find_step` has found a region
    first.file = first.file or step.source.file
    raise first


def _of_split(step: Step, apart: SplitSource) -> Patch:
    """The patch of a step whose statements were taken apart."""
    region = next(regions(apart.source, apart.marks, step.repeats))
    changed = replace(step, source=apart.source, marks=apart.marks)
    patch = _Rewriting(region, changed, apart.seen, apart.fetched).patch()
    whole = region_of(step.source, step.marks, "step", step.repeats)
    line = [0, *apart.lines].__getitem__
    return replace(
        patch,
        before=step.source.encoded(step.source.text),
        reference=_reference(whole, apart.seen, optimizer_flags(whole, apart.seen)),
        first_line=line(patch.first_line),
        last_line=line(patch.last_line),
        hunks=tuple((key, line(at)) for key, at in patch.hunks),
    )


def _reference(region: Region, seen: Observation, changes: Sequence[Change]) -> bytes:
    """The file with the changes beside the step; empty if there are none."""
    source, at = region.source, import_line(region.source, region.statements[0].lineno)
    lines = unchecked_distributions(source) if seen.validates else []
    if not (changes or lines):
        return b""
    text = source.applied(edit for change in changes for edit in change.edits)
    every = text.splitlines(keepends=True)
    return source.encoded("".join([*every[:at], *lines, *every[at:]]))


class _Rewriting:
    """From a region to the text of the file."""

    def __init__(
        self,
        region: Region,
        step: Step,
        seen: Observation,
        fetched: Names = NOTHING,
        *,
        moves: bool = True,
        extends: bool = True,
    ):
        source = copy.copy(region.source)
        source.names = set(source.names)  # to which it adds its own
        self._owner = source.owner_of(region.function)
        region = replace(region, first=begun(region, seen, self._owner))
        more = 0
        if extends and region.covered != "forward":
            more = extended(region, step.marks, seen, self._owner) - region.last
            by_hand = more and not any("step" in calls for calls in step.marks.values())
            covered = "step" if by_hand else region.covered
            region = replace(region, last=region.last + more, covered=covered)
        self._source, self._region, self._seen, self._fetched = source, region, seen, fetched
        self._items = items_of(region, seen, self._owner)
        for item in self._items[len(self._items) - more :]:
            item.calls |= {"step"}
        sort_items(self._items, seen, moves=moves)
        self._core = Uses(self._of("core"), self._owner)
        self._require_plain_names()

    def _of(self, role: str) -> list[ast.stmt]:
        return [node for item in self._items if item.role == role for node in item.nodes]

    # ------------------------------------------------------------------------------ the names

    @property
    def _ends(self) -> bool:
        """Whether the step ends with a `return` of its function."""
        return (
            isinstance(self._region.statements[-1], ast.Return) and self._items[-1].role == "core"
        )

    @property
    def _body(self) -> Sequence[ast.stmt]:
        function = self._region.function
        return self._source.tree.body if function is None else function.body  # type: ignore[attr-defined]

    def _require_plain_names(self) -> None:
        for name in self._core.reads | self._core.binds:
            private = name.rpartition(".")[2].startswith("__") or name == "super"
            if self._region.function is not None and private:
                raise RefusedError("scope", self._user_of(name), name)

    def _user_of(self, name: str) -> ast.stmt:
        """The first statement of the step with this name."""
        uses = ((node, Uses([node], self._owner)) for node in self._of("core"))
        return next(node for node, found in uses if name in found.reads | found.binds)

    @cached_property
    def _returned(self) -> list[str]:
        """What is read after the call, in the order in which the step binds it."""
        function = self._region.function
        always = read_by_functions(self._body, self._owner)
        if function is not None:
            always |= declared_outside(function)
        if self._ends:
            return []
        live = always | self._region.read_after(self._owner)
        for node in reversed(self._of("behind")):
            found = Uses([node], self._owner)
            live = (live - found.bound) | found.exposed
        bound = {name for name in self._core.binds & live - self._fetched if "." not in name}
        return _in_order(self._of("core"), bound)

    @cached_property
    def _bound(self) -> frozenset[str]:
        """What the step always binds, as far as it was seen: in loops that have run, too."""
        ran = {line.line for line in self._seen.lines}
        loops = [n for n in self._of("core") if isinstance(n, LOOPS) and n.body[0].lineno in ran]
        inside = (Uses(loop.body, self._owner).bound for loop in loops)
        return frozenset(self._core.bound).union(*inside)

    def _parameters(self, core: Uses) -> dict[str, str]:
        """What the call passes, with its code."""
        function, changing = self._region.function, self._region.changing(self._owner)
        known = NOTHING if function is None else parameters(function)
        bound = known | self._region.bound_before(self._owner)
        bound |= frozenset(Uses(self._of("before"), self._owner).bound)
        wanted = {n.partition(".")[0] for n in core.exposed} & changing
        kept = {name for name in self._returned if name not in self._bound}
        needed = {n.partition(".")[0] for n in core.needed}
        unsure = sorted((wanted - needed | kept) - bound)
        asked = {name: f"{name} if {self._test_around(name)} else None" for name in unsure}
        return {n: asked.get(n, n) for n in _in_order(self._of("core"), wanted | kept)}

    def _test_around(self, name: str) -> str:
        """What the step asks before it reads a name that nothing else reads."""
        core = self._of("core")
        inside = {inner for statement in core for inner in ast.walk(statement)}
        outside = {n for s in self._body for n in ast.walk(s)} - inside
        others = Uses([n for n in outside if isinstance(n, ast.Name)]).reads
        others |= {name} & declared_outside(self._region.function or self._source.tree)
        readers = [n for n in core if name in Uses([n], self._owner).reads]
        if len(readers) == 1 and isinstance(node := readers[0], ast.If) and name not in others:
            body, orelse = (name in Uses(n).reads for n in (node.body, node.orelse))
            if body != orelse and Uses([node.test]).reads.isdisjoint(self._core.binds | {name}):
                return f"({ast.unparse(node.test)})" if body else f"not ({ast.unparse(node.test)})"
        raise RefusedError("branch_name", self._user_of(name), name)

    def _require_steady(self, given: Iterable[str]) -> None:
        """What the call passes is no number that changes, and needs no backward: what the call
        before has returned does not."""
        core = self._of("core")
        others = Uses([s for s in self._region.block.statements if s not in core]).binds
        for name in given:
            holding = self._seen.names.get(name)
            own = name in self._core.binds and name not in others
            if holding == "changing" or (holding == "graph" and not own):
                reader = next((n for n in core if name in Uses([n], self._owner).reads), core[0])
                changes = holding == "changing"
                raise RefusedError("changing_number" if changes else "needs_gradient", reader, name)

    def _require_no_reads(self, chosen: Selections) -> None:
        """The step waits for no value. What a changing number selects, the call passes."""
        for item in self._items:
            item.causes = tuple(cause for cause in item.causes if cause not in chosen.passed)
            if item.role == "core" and any(not cause.changed for cause in item.causes):
                raise item.refused("host_read")

    def _value(self, name: str) -> str:
        if self._seen.names.get(name) != "graph" or self._region.covered == "forward":
            return name
        if name in self._bound:
            return f"{name}.detach()"
        return f"{name}.detach() if hasattr({name}, 'detach') else {name}"

    # ------------------------------------------------------------------------------- the text

    def patch(self) -> Patch:
        region, source = self._region, self._source
        if DECORATOR in source.names:
            named = (n for n in ast.walk(source.tree) if DECORATOR in vars(n).values())
            raise RefusedError("name_taken", next(named, None), DECORATOR)
        changing = frozenset(n for n, kind in self._seen.names.items() if kind == "changing")
        causes = [cause for item in self._items for cause in item.causes]
        written = {v.partition(".")[0] for i in self._items if i.role == "core" for v in i.tensors}
        inside = frozenset(self._core.binds | written)
        core = self._of("core")
        chosen = Selections(source, core, changing, inside, causes)
        self._require_no_reads(chosen)
        given = self._parameters(Uses(chosen.nodes, self._owner))
        self._require_steady(given)
        name = source.fresh("infer_step" if region.covered == "forward" else "train_step")
        parts = [*given.items(), *chosen.parts]
        flags = [] if region.covered == "forward" else optimizer_flags(region, self._seen)
        reference = _reference(region, self._seen, flags)
        edits = [edit for flag in flags for edit in flag.edits]
        changed = Source(source.file, source.applied([*edits, *chosen.edits]), source.encoding)
        lines = self._lines(changed, name, parts)
        after = source.encoded("".join(lines))
        first, last = region.statements[0], region.statements[-1]
        hunks = [(flag.key, flag.line) for flag in flags]
        hunks += [("validate_args", first.lineno)] if self._seen.validates else []
        before = source.encoded(source.text)
        return Patch(
            source.file, before, after, name, first.lineno, last.end_lineno or last.lineno,
            region.covered, tuple(hunks),
            frozenset(self._core.binds) - frozenset(self._returned), reference,
        )  # fmt: skip

    def _lines(self, changed: Source, name: str, parts: Sequence[tuple[str, str]]) -> list[str]:
        """Of the new file."""
        newline, first, last = self._source.newline, self._items[0].first, self._items[-1].last
        begins = self._begins()
        around = changed.indent(first)
        call = self._call(name, [code for _, code in parts], around)
        moved = {role: [line for item in self._items if item.role == role
                        for line in changed.moved(begins[item.first], item.last, around)]
                 for role in ("before", "behind")}  # fmt: skip
        block = [*moved["before"], *(f"{around}{line}{newline}" for line in call), *moved["behind"]]
        top = self._anchor()
        definition = self._definition(changed, name, [n for n, _ in parts], changed.indent(top))
        lines = changed.lines
        made = [*lines[: begins[first] - 1], *_ended(block, newline), *lines[last:]]
        made[top - 1 : top - 1] = spaced(definition, made[: top - 1], changed.indent(top), newline)
        at = import_line(changed, top)
        checks = unchecked_distributions(changed) if self._seen.validates else []
        made[at:at] = [f"{IMPORT}{newline}", *checks]
        return made

    def _begins(self) -> dict[int, int]:
        """Where the lines of each item begin, with the comments above it."""
        found: dict[int, int] = {}
        end = self._items[0].first - 1
        for item in self._items:
            found[item.first], end = end + 1, item.last
        return found

    def _call(self, name: str, arguments: Sequence[str], indent: str) -> list[str]:
        target = f"{', '.join(self._returned)} = " if self._returned else ""
        target = "return " if self._ends else target
        return wrapped(f"{target}{name}(", arguments, ")", indent, self._source.unit)

    def _definition(
        self, changed: Source, name: str, given: Sequence[str], indent: str
    ) -> list[str]:
        newline, unit = self._source.newline, self._source.unit
        head = [f"@{DECORATOR}", *wrapped(f"def {name}(", given, "):", indent, unit)]
        begins = self._begins()
        body = [
            line for item in self._items if item.role == "core"
            for line in changed.moved(begins[item.first], item.last, indent + unit)
        ]  # fmt: skip
        while not body[0].strip():
            body.pop(0)
        tail = [f"return {', '.join(map(self._value, self._returned))}"] if self._returned else []
        return [
            *(f"{indent}{line}{newline}" for line in head),
            *_ended(body, newline),
            *(f"{indent}{unit}{line}{newline}" for line in tail),
        ]

    def _anchor(self) -> int:
        """The line in front of which the new function goes: the outermost loop, or the function or
        class that is called again and again."""
        region = self._region
        if not region.repeats:
            return self._above(first_line(region.loops[-1]))
        assert region.function is not None
        found = region.function
        owner = self._source.block_of[found].owner
        while isinstance(owner, ast.ClassDef):
            found, owner = owner, self._source.block_of[owner].owner
        return self._above(first_line(found))

    def _above(self, line: int) -> int:
        """The first of the comments that stand right above a line."""
        while line > 1 and self._source.lines[line - 2].strip().startswith("#"):
            line -= 1
        return line


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


def _ended(lines: list[str], newline: str) -> list[str]:
    """The last line of a file may have no end."""
    return [line if line.endswith(("\n", "\r")) else line + newline for line in lines]
