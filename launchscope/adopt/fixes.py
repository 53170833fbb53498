"""Changes beside the step that let a graph contain more of it, or wait less around it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from launchscope.adopt.names import (
    FUNCTIONS,
    Names,
    Uses,
)
from launchscope.adopt.patch import Fix, Ran
from launchscope.adopt.placement import may_be_on_gpu
from launchscope.adopt.region import Region, own_calls
from launchscope.adopt.source import Edit, Source, Statement
from launchscope.python_source import last_name

_COMMENTS: dict[Fix, str] = {
    "fused": "so that the graph contains it",
    "capturable": "so that the graph contains it",
    "pin_memory": "so that copies to the GPU need not wait",
    "on_device": "made on the GPU, so that no copy waits",
    "validate_args": "its checks wait for the GPU",
}
_FUSED = ("SGD", "Adam", "AdamW")
_CAPTURABLE = "NAdam"  # it has numbers on the host that no runtime can move
_ON_GPU = "torch.cuda.is_available()"  # capturable fails on a CPU, and pin_memory warns
_SAME_ANYWHERE = ("zeros", "ones", "full", "arange", "eye")  # the same values on each device
_NAMED = (ast.Name, ast.Attribute)
_IMPORTS = (ast.Import, ast.ImportFrom)
_FORMS = ("fused", "foreach", "capturable", "differentiable")  # that a person has chosen


@dataclass(frozen=True)
class Change:
    key: Fix
    line: int  # before the change
    edits: tuple[Edit, ...]


def fixes(region: Region, schedules: bool, ran: Ran) -> list[Change]:
    """For the optimizers of a whole step, and for copies and checks that wait."""
    source = region.source
    found = [*_pageable_copies(region)]
    found += [*_made_on_the_host(source), *_unchecked_distributions(source)]
    if region.covered in ("step", "part"):
        found += _optimizers(region, schedules, ran.partial_momentum)
    return found


def _optimizers(region: Region, schedules: bool, partial_momentum: bool) -> Iterator[Change]:
    """`graphed` runs these eagerly behind the graph otherwise, see docs/graphed.md: under a scaler,
    SGD at a rate that changes, and NAdam."""
    source = region.source
    calls = [call for statement in region.marks for call in own_calls(statement.node)]
    steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "step"]
    scaled = {ast.unparse(argument) for call in steps for argument in call.args[:1]}
    stepped = {ast.unparse(call.func.value) for call in steps}  # type: ignore[attr-defined]
    made: dict[str, tuple[Fix, ast.Call]] = {}
    own = _class_of(region.function)
    of_class = {  # what objects of the class itself get
        ast.unparse(s.node.targets[0])
        for s in source.statements
        if isinstance(s.node, ast.Assign) and own is not None and _class_of(s) is own
    }
    for statement in source.statements:
        node = statement.node
        of_others = own is not None and _class_of(statement) not in (own, None)
        if of_others and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in of_class:
            continue
        if (
            node.lineno > region.statements[0].node.lineno
            and statement.function() is region.function
        ):
            continue
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        name, call = ast.unparse(node.targets[0]), node.value
        kind = last_name(call.func)
        if name not in scaled | stepped:
            continue
        made.pop(name, None)  # the last one before the step is the one that steps
        chosen = {k.arg for k in call.keywords} & {*_FORMS, None}
        if kind == "SGD" and partial_momentum:
            continue
        if kind in _FUSED and not chosen and (name in scaled or (kind == "SGD" and schedules)):
            made[name] = "fused", call
        elif kind == _CAPTURABLE and not chosen and name not in scaled:
            made[name] = "capturable", call
    for key, call in made.values():
        yield Change(key, call.lineno, tuple(_with_argument(source, call, key)))


def _class_of(statement: Statement | None) -> Statement | None:
    """The class that a statement is in the body of, or in a method of."""
    around = () if statement is None else statement.around()
    return next((s for s in around if isinstance(s.node, ast.ClassDef)), None)


def _with_argument(source: Source, call: ast.Call, key: Fix) -> Iterator[Edit]:
    on_gpu = key != "fused" and "torch" in source.names
    yield _argument(source, call, f"{key}={_ON_GPU if on_gpu else True}")
    yield from _comment(source, source.span(call)[1], key)


def _argument(source: Source, call: ast.Call, text: str) -> Edit:
    """Behind the last argument of a call, or where the first would be."""
    begin, end = source.span(call)
    code = source.text[begin:end]
    offsets = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", code))]
    given = [
        token
        for token in tokenize.generate_tokens(io.StringIO(code, newline="").readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    ][-2]  # in front of the closing parenthesis
    at = begin + offsets[given.end[0] - 1] + given.end[1]
    return Edit(at, at, {"(": text, ",": f" {text}"}.get(given.string, f", {text}"))


def _comment(source: Source, end: int, key: Fix) -> Iterator[Edit]:
    """At the end of the line, if nothing else is there."""
    rest = source.text[end:].splitlines()[:1]
    if not "".join(rest).strip():
        yield Edit(end, end, f"  # {_COMMENTS[key]}")


def _made_on_the_host(source: Source) -> Iterator[Change]:
    """`torch.zeros(...).to(device)` in a forward copies from pageable memory, as no graph can."""
    for statement in source.statements:
        function = statement.function()
        if getattr(function and function.node, "name", "") != "forward" or statement.blocks:
            continue
        edits: list[Edit] = []
        for call in own_calls(statement.node):
            device = _device_of_copy(call)
            if device is not None:
                made: ast.Call = call.func.value  # type: ignore[attr-defined]
                edits.append(_argument(source, made, f"device={device}"))
                edits.append(Edit(source.span(made)[1], source.span(call)[1], ""))
        if edits:
            edits += _comment(source, source.span(statement.node)[1], "on_device")
            yield Change("on_device", statement.node.lineno, tuple(edits))


def _unchecked_distributions(source: Source) -> Iterator[Change]:
    """What torch.distributions is given, it checks on the host, unless told not to. This is for a
    file whose functions use it."""
    used = _read_in_functions(source)
    nodes = list(ast.walk(source.tree))
    chosen: set[str | None] = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    chosen |= {n.arg for n in nodes if isinstance(n, ast.keyword)}
    if chosen & {"set_default_validate_args", "validate_args"}:
        return
    top = source.body.statements
    for index, statement in enumerate(top):
        found = _distribution(statement.node, source)
        if found is None or not used & found[1]:
            continue
        while index + 1 < len(top) and isinstance(top[index + 1].node, _IMPORTS):
            index += 1
        node = top[index].node
        end, newline = _line_end(source, source.span(node)[1])
        line = f"{found[0]}.set_default_validate_args(False)  # {_COMMENTS['validate_args']}"
        edit = Edit(end, end, f"{newline}{newline}{line}")
        yield Change("validate_args", node.end_lineno or node.lineno, (edit,))
        return


def _line_end(source: Source, position: int) -> tuple[int, str]:
    """Where the line ends that a position is in, and with what."""
    end = source.text.find("\n", position)
    end = len(source.text) if end < 0 else end
    newline = "\r\n" if source.text[:end].endswith("\r") else "\n"
    return end - (newline == "\r\n"), newline


def _distribution(node: ast.stmt, source: Source) -> tuple[str, Names] | None:
    """How the file spells a class of torch.distributions, and the names that it imports from
    there."""
    module = "torch.distributions"
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(module):
        names = [alias.asname or alias.name for alias in node.names if alias.name != "*"]
        return (f"{module}.Distribution", frozenset(names)) if _imports_torch(source) else None
    if isinstance(node, ast.ImportFrom) and node.module == "torch":
        parts = [alias.asname or alias.name for alias in node.names if alias.name == module[6:]]
        return (f"{parts[0]}.Distribution", frozenset(parts)) if parts else None
    for alias in node.names if isinstance(node, ast.Import) else ():
        if alias.name == module:
            spelled = alias.asname or module
            # Without a name of its own, any `torch.distributions` in a function is one.
            return f"{spelled}.Distribution", frozenset((alias.asname or "distributions",))
    return None


def _imports_torch(source: Source) -> bool:
    return any(
        alias.name.partition(".")[0] == "torch" and alias.asname is None
        for statement in source.body.statements if isinstance(statement.node, ast.Import)
        for alias in statement.node.names
    )  # fmt: skip


def _read_in_functions(source: Source) -> Names:
    """Names and attributes."""
    functions = [n for n in ast.walk(source.tree) if isinstance(n, FUNCTIONS)]
    every = [inner for function in functions for inner in ast.walk(function)]
    names = {node.id for node in every if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in every if isinstance(node, ast.Attribute)})


def _device_of_copy(call: ast.Call) -> str | None:
    """`device` of `torch.zeros(4).to(device)`."""
    outer = call.func
    if not isinstance(outer, ast.Attribute) or not isinstance(made := outer.value, ast.Call):
        return None
    inner, given = made.func, {keyword.arg for keyword in made.keywords}
    known = (
        isinstance(inner, ast.Attribute)
        and inner.attr in _SAME_ANYWHERE
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "torch"
    )
    if not known or not made.args or given & {"device", "pin_memory", None} or call.keywords:
        return None
    if outer.attr == "cuda" and not call.args:
        return repr("cuda").replace("'", '"')
    place = call.args[0] if outer.attr == "to" and len(call.args) == 1 else None
    text = "" if place is None else ast.unparse(place)
    return text if "device" in text.lower() or "cuda" in text else None


def _pageable_copies(region: Region) -> Iterator[Change]:
    """`x = x.to(device)` waits for the GPU where a data loader made `x` in pageable memory. Nothing
    else may see that memory, which the copy reads later then."""
    source, loop = region.source, region.loops[0] if region.loops else None
    if loop is None or not isinstance(loop.node, ast.For):
        return
    names = {ast.unparse(n) for n in ast.walk(loop.node.iter) if isinstance(n, _NAMED)}
    made = [
        (s, s.node.value)
        for s in source.statements
        if isinstance(s.node, ast.Assign) and ast.unparse(s.node.targets[0]) in names
        if s.function() in (region.function, None)
    ]
    if len(made) != 1 or not isinstance(loader := made[0][1], ast.Call):
        return
    kind = last_name(loader.func)
    if kind != "DataLoader" or {k.arg for k in loader.keywords} & {"pin_memory", None}:
        return
    if may_be_on_gpu(source, loader, made[0][0]):  # where nothing can be pinned
        return
    left = set(Uses([loop.node.target]).binds)
    edits: list[Edit] = []
    for statement in loop.blocks[0].statements:
        uses = Uses([statement.node])
        copies = list(_copied(statement.node, frozenset(left & uses.bound)))
        if left & uses.reads != {name for name, _ in copies}:
            left -= uses.reads | uses.binds  # it may be kept
            continue
        for name, call in copies:
            end = source.span(call)[1] - 1
            edits.append(
                Edit(end, end, ", non_blocking=True" if call.args else "non_blocking=True")
            )
            left.discard(name)
    if edits:
        edits += _with_argument(source, loader, "pin_memory")
        yield Change("pin_memory", loader.lineno, tuple(edits))


def _copied(node: ast.stmt, names: Names) -> Iterator[tuple[str, ast.Call]]:
    """The copies in `x, y = x.to(device), y.cuda()` of variables with these names."""
    value = node.value if isinstance(node, ast.Assign) else None
    for call in value.elts if isinstance(value, ast.Tuple) else [value]:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        root, arguments = call.func.value, call.args
        if not isinstance(root, ast.Name) or root.id not in names or call.keywords:
            continue
        to_gpu = len(arguments) == 1 and isinstance(arguments[0], _NAMED)
        if (call.func.attr == "to" and to_gpu) or (call.func.attr == "cuda" and not arguments):
            yield root.id, call
