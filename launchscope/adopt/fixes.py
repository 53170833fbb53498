"""Changes beside the step that let a graph contain more of it, or wait less around it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launchscope.adopt.names import (
    FUNCTIONS,
    Names,
    Uses,
    backward_roots,
    declared_outside,
    read_by_functions,
)
from launchscope.adopt.patch import Fix, Ran
from launchscope.adopt.placement import may_be_on_gpu
from launchscope.adopt.region import LOOPS, Region, own_calls
from launchscope.adopt.source import Edit, Source, Statement
from launchscope.python_source import last_name

_COMMENTS: dict[Fix, str] = {
    "fused": "so that the graph contains it",
    "capturable": "so that the graph contains it",
    "pin_memory": "so that copies to the GPU need not wait",
    "item_accumulation": "adds up on the GPU, without waiting for it",
    "on_device": "made on the GPU, so that no copy waits",
    "validate_args": "its checks wait for the GPU",
    "side_stream": "the default one cannot be captured",
}
_FUSED = ("SGD", "Adam", "AdamW")
_CAPTURABLE = "NAdam"  # it has numbers on the host that no runtime can move
_ON_GPU = "torch.cuda.is_available()"  # capturable fails on a CPU, and pin_memory warns
_SAME_ANYWHERE = ("zeros", "ones", "full", "arange", "eye")  # the same values on each device
_NAMED = (ast.Name, ast.Attribute)
_IMPORTS = (ast.Import, ast.ImportFrom)
_OF_RANKS = ("DistributedDataParallel", "fully_shard")
_STREAMS = ("set_stream", "stream")  # of torch.cuda
_FORMS = ("fused", "foreach", "capturable", "differentiable")  # that a person has chosen


@dataclass(frozen=True)
class Change:
    key: Fix
    line: int  # before the change
    edits: tuple[Edit, ...]


def fixes(region: Region, schedules: bool, ran: Ran) -> list[Change]:
    """For the optimizers of a whole step, for sums of values that are read one by one, and for
    copies and checks that wait."""
    source = region.source
    found = [*_sums(region), *_pageable_copies(region)]
    found += [*_made_on_the_host(source), *_unchecked_distributions(source)]
    if region.covered in ("step", "part"):
        found += _optimizers(region, schedules, ran.partial_momentum)
        if ran.ranks > 1:
            found += _side_stream(source)
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


def _side_stream(source: Source) -> Iterator[Change]:
    """DistributedDataParallel and FSDP2 keep streams from when they are made, see docs/graphed.md.
    One is set where a rank chooses its GPU, before anything runs on it."""
    calls = [
        (statement, call) for statement in source.statements for call in own_calls(statement.node)
    ]
    aliases = {
        alias.asname or alias.name
        for statement in source.statements
        if isinstance(statement.node, ast.ImportFrom)
        for alias in statement.node.names
        if alias.name in _OF_RANKS
    }
    made = [
        statement
        for statement, call in calls
        if getattr(call.func, "attr", None) in _OF_RANKS
        or getattr(call.func, "id", None) in aliases
    ]
    chooses_one = any(getattr(call.func, "attr", "") in _STREAMS for _, call in calls)
    if not made or chooses_one or not _imports_torch(source):
        return
    chosen = [s for s, call in calls if ast.unparse(call.func) == "torch.cuda.set_device"]
    for statement in chosen:
        begin, end = source.span(statement.node)
        indent = source.text[source.text.rfind("\n", 0, begin) + 1 : begin]
        behind, newline = _line_end(source, end)
        rest = source.text[end:behind].partition("#")[0]
        if not indent.strip() and not rest.strip():
            line = f"torch.cuda.set_stream(torch.cuda.Stream())  # {_COMMENTS['side_stream']}"
            edit = Edit(behind, behind, f"{newline}{indent}{line}")
            yield Change("side_stream", statement.node.lineno, (edit,))


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


def _sums(region: Region) -> Iterator[Change]:
    """`total += loss.item()` waits in each iteration for a number that is only read afterwards."""
    if not region.loops:
        return
    loop, source = region.loops[0], region.source
    function = region.function
    body = source.tree.body if function is None else function.node.body  # type: ignore[attr-defined]
    elsewhere = read_by_functions(body, None)
    if function is not None:
        elsewhere |= declared_outside(function.node)
    made = _losses([s.node for s in region.statements])
    if any(isinstance(n, ast.Return | ast.Yield | ast.Await) for n in ast.walk(loop.node)):
        return
    if any(isinstance(s.node, ast.Try) for s in loop.around()):
        return  # what handles an exception would find a tensor
    end = source.span(loop.node)[1]
    for statement in _directly_in(loop):
        name = _summed(statement.node, made)
        if name is None or name in elsewhere or _reads(loop, name, statement):
            continue
        if not _begins_as_number(body, name):
            continue
        if statement.block.owner is not loop and _is_ever_an_integer(body, name):
            continue  # which it stays where the condition never holds
        node = statement.node
        assert isinstance(node, ast.AugAssign)
        assert isinstance(node.value, ast.Call)
        operand = node.value.func.value  # type: ignore[attr-defined]
        begin = source.span(operand)[1]
        column = source.span(loop.node)[0]
        indent = source.text[source.text.rfind("\n", 0, column) + 1 : column]
        if indent.strip() or loop.block.is_elif:
            continue
        value = source.span(node.value)[1]
        line_end, newline = _line_end(source, end)
        edits = [Edit(begin, value, ".detach().double()")]
        edits += _comment(source, value, "item_accumulation")
        edits.append(Edit(line_end, line_end, f"{newline}{indent}{name} = float({name})"))
        yield Change("item_accumulation", node.lineno, tuple(edits))


def _losses(nodes: Sequence[ast.stmt]) -> Names:
    """What the step calls backward() of, and what that is a sum of. Of anything else nobody knows
    whether it is an integer, whose sum would become a float."""
    every = [inner for node in nodes for inner in ast.walk(node)]
    binds = Uses(nodes).binds
    found = set(backward_roots(nodes, binds))
    for call in every:
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "backward":
            found |= _terms(call.func.value)  # type: ignore[attr-defined]
    count = -1
    while len(found) > count:
        count = len(found)
        for node in every:
            if isinstance(node, ast.Assign) and found & Uses(node.targets).binds:
                found |= _terms(node.value)
    return frozenset(found & binds)


def _terms(node: ast.expr) -> set[str]:
    """The names in a sum of multiples; a divisor may be a count."""
    if isinstance(node, ast.BinOp):
        right = set() if isinstance(node.op, ast.Div) else _terms(node.right)
        return _terms(node.left) | right
    return {node.id} if isinstance(node, ast.Name) else set()


def _directly_in(loop: Statement) -> Iterator[Statement]:
    """The statements of the loop that run in each iteration or under a condition, but not more
    often."""
    for block in loop.blocks[:1]:
        for statement in block.statements:
            if not isinstance(statement.node, LOOPS):
                yield from (s for s in statement.walk() if not s.blocks)


def _summed(node: ast.stmt, made: Names) -> str | None:
    """`total` of `total += loss.item()`, where the step makes `loss`."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
        return None
    value = node.value
    if not isinstance(node.target, ast.Name) or not isinstance(value, ast.Call) or value.args:
        return None
    if not isinstance(value.func, ast.Attribute) or value.func.attr != "item":
        return None
    operand = value.func.value
    return node.target.id if isinstance(operand, ast.Name) and operand.id in made else None


def _begins_as_number(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether it only ever gets numbers that are in the text: a tensor would become a number."""
    given: list[ast.expr] = []
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if not isinstance(node, ast.Assign) or name not in Uses(node.targets).binds:
            continue
        for target in node.targets:
            parts, value = getattr(target, "elts", [target]), node.value
            values = getattr(value, "elts", [value] * len(parts))
            given += [v for p, v in zip(parts, values) if getattr(p, "id", "") == name]
    return bool(given) and all(
        isinstance(value, ast.Constant) and type(value.value) in (int, float) for value in given
    )


def _is_ever_an_integer(body: Sequence[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
        and name in Uses(node.targets).binds
        for statement in body
        for node in ast.walk(statement)
    )


def _reads(loop: Statement, name: str, apart: Statement) -> bool:
    """Whether the loop does anything else with a name."""
    return any(
        isinstance(node, ast.Name) and node.id == name
        for statement in loop.walk()
        if statement is not apart
        for child in ast.iter_child_nodes(statement.node)
        if not isinstance(child, ast.stmt)
        for node in ast.walk(child)
    )
