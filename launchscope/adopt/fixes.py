"""Changes beside the step that let a graph contain more of it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from launchscope.adopt.names import FUNCTIONS, Names
from launchscope.adopt.observation import Observation
from launchscope.adopt.patch import Fix
from launchscope.adopt.region import Region, own_calls
from launchscope.adopt.source import Edit, Source, last_line
from launchscope.python_source import last_name

_COMMENTS: dict[Fix, str] = {
    "fused": "so that the graph contains it",
    "capturable": "so that the graph contains it",
    "validate_args": "its checks wait for the GPU",
}
_FUSED = ("SGD", "Adam", "AdamW")
_CAPTURABLE = "NAdam"  # it has numbers on the host that no runtime can move
_ON_GPU = "torch.cuda.is_available()"  # capturable fails on a CPU
_FORMS = ("fused", "foreach", "capturable", "differentiable")  # that a person has chosen


@dataclass(frozen=True)
class Change:
    key: Fix
    line: int  # before the change
    edits: tuple[Edit, ...]


def optimizer_flags(region: Region, seen: Observation) -> list[Change]:
    """`graphed` runs these eagerly behind the graph otherwise, see docs/graphed.md: under a scaler,
    SGD at a rate that changes, and NAdam."""
    source = region.source
    calls = [call for statement in region.marks for call in own_calls(statement)]
    steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "step"]
    scaled = {ast.unparse(argument) for call in steps for argument in call.args[:1]}
    stepped = {ast.unparse(call.func.value) for call in steps}  # type: ignore[attr-defined]
    made: dict[str, Change] = {}
    for name, call in _assigned_calls(source):
        if name not in scaled | stepped:
            continue
        made.pop(name, None)
        kind, chosen = last_name(call.func), {k.arg for k in call.keywords} & {*_FORMS, None}
        key: Fix | None = None
        if kind in _FUSED and (name in scaled or (kind == "SGD" and seen.schedules)):
            key = None if kind == "SGD" and seen.partial_momentum else "fused"
        elif kind == _CAPTURABLE and name not in scaled:
            key = "capturable"
        if key is not None and not chosen:
            made[name] = Change(key, call.lineno, tuple(_with_argument(source, call, key)))
    return list(made.values())


def _assigned_calls(source: Source) -> Iterator[tuple[str, ast.Call]]:
    for node in source.block_of:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield ast.unparse(node.targets[0]), node.value


def _with_argument(source: Source, call: ast.Call, key: Fix) -> Iterator[Edit]:
    """Behind the last argument of a call, or where the first would be; with a comment, if nothing
    else is at the end of the line."""
    on_gpu = key != "fused" and "torch" in source.names
    text = f"{key}={_ON_GPU if on_gpu else True}"
    begin, end = source.span(call)
    code = source.text[begin:end]
    offsets = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", code))]
    given = [
        token
        for token in tokenize.generate_tokens(io.StringIO(code, newline="").readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    ][-2]  # in front of the closing parenthesis
    at = begin + offsets[given.end[0] - 1] + given.end[1]
    yield Edit(at, at, {"(": text, ",": f" {text}"}.get(given.string, f", {text}"))
    if not "".join(source.text[end:].splitlines()[:1]).strip():
        yield Edit(end, end, f"  # {_COMMENTS[key]}")


def distribution_checks(source: Source) -> Change | None:
    """What torch.distributions is given, it checks on the host, unless told not to. This is for a
    file whose functions use it. The edit adds whole lines."""
    used = _read_in_functions(source)
    nodes = list(ast.walk(source.tree))
    chosen: set[str | None] = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    chosen |= {n.arg for n in nodes if isinstance(n, ast.keyword)}
    if chosen & {"set_default_validate_args", "validate_args"}:
        return None
    top = source.tree.body
    for index, statement in enumerate(top):
        found = _distribution(statement, source)
        if found is None or not used & found[1]:
            continue
        while index + 1 < len(top) and isinstance(top[index + 1], ast.Import | ast.ImportFrom):
            index += 1
        line = last_line(top[index])
        at = sum(map(len, source.lines[:line]))
        text = f"{found[0]}.set_default_validate_args(False)  # {_COMMENTS['validate_args']}"
        edit = Edit(at, at, f"{source.newline}{text}{source.newline}")
        return Change("validate_args", line, (edit,))
    return None


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
        for node in source.tree.body if isinstance(node, ast.Import)
        for alias in node.names
    )  # fmt: skip


def _read_in_functions(source: Source) -> Names:
    """Names and attributes."""
    functions = [n for n in ast.walk(source.tree) if isinstance(n, FUNCTIONS)]
    every = [inner for function in functions for inner in ast.walk(function)]
    names = {node.id for node in every if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in every if isinstance(node, ast.Attribute)})
