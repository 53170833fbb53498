"""Changes beside the step that let a graph contain more of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from launchscope.adopt.observation import Observation
from launchscope.adopt.patch import Fix
from launchscope.adopt.region import Region, own_calls
from launchscope.adopt.source import Edit, Source
from launchscope.python_source import last_name

_COMMENTS: dict[Fix, str] = {
    "fused": "so that the graph contains it",
    "validate_args": "its checks wait for the GPU",
}
_FUSED = ("SGD", "Adam", "AdamW")
_FORMS = ("fused", "foreach", "capturable", "differentiable")  # that a person has chosen


@dataclass(frozen=True)
class Change:
    key: Fix
    line: int  # before the change
    edits: tuple[Edit, ...]


def optimizer_flags(region: Region, seen: Observation) -> list[Change]:
    """`graphed` runs these eagerly behind the graph otherwise, see docs/graphed.md: under a scaler,
    and SGD at a rate that changes."""
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
        needed = kind in _FUSED and (name in scaled or (kind == "SGD" and seen.schedules))
        if needed and not chosen and (call.args or call.keywords):
            made[name] = Change("fused", call.lineno, tuple(_with_fused(source, call)))
    return list(made.values())


def _assigned_calls(source: Source) -> Iterator[tuple[str, ast.Call]]:
    for node in source.block_of:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield ast.unparse(node.targets[0]), node.value


def _with_fused(source: Source, call: ast.Call) -> Iterator[Edit]:
    """Behind the last argument; with a comment, if nothing else is at the end of the line."""
    given = (source.span(value)[1] for value in (*call.args, *(k.value for k in call.keywords)))
    at, end = max(given), source.span(call)[1]
    yield Edit(at, at, ", fused=True")
    if not "".join(source.text[end:].splitlines()[:1]).strip():
        yield Edit(end, end, f"  # {_COMMENTS['fused']}")


def unchecked_distributions(source: Source) -> list[str]:
    """Lines after which torch.distributions checks no values, which it would do on the host."""
    imports = (node for node in source.tree.body if isinstance(node, ast.Import))
    known = any(
        a.name.partition(".")[0] == "torch" and not a.asname for i in imports for a in i.names
    )
    call = "torch.distributions.Distribution.set_default_validate_args(False)"
    lines = [] if known else ["import torch"]
    return [
        f"{line}{source.newline}" for line in (*lines, f"{call}  # {_COMMENTS['validate_args']}")
    ]
