"""Finds why a replay is not the step that eager would run: what changed since the capture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import cast

from launchscope.model import Cause, CauseKind, SourceLine
from launchscope.runner.child.capture.step_trace import Call, StepTrace
from launchscope.runner.child.facts.step_ops import alive
from launchscope.runner.child.facts.torch_types import Optimizer, StorageRef

_MOST_NAMED = 5
# By the optimizer's class, the number of the parameter group and the name in it.
Hyperparameters = dict[tuple[str, int, str], object]


def hyperparameters(optimizers: Iterable[Optimizer]) -> Hyperparameters:
    """Every Python number that the optimizers' parameter groups hold now."""
    found: Hyperparameters = {}
    groups = [(type(o).__name__, group) for o in optimizers for group in o.param_groups]
    for index, (optimizer, group) in enumerate(groups):  # two optimizers may have one class
        for name, value in dict.items(group):
            numbers = value if type(value) in (tuple, list) else (value,)
            if name != "params" and all(_number(number) is not None for number in numbers):
                found[optimizer, index, name] = value
    return found


def causes_between(
    captured: StepTrace,
    eager: StepTrace,
    before: Hyperparameters,
    after: Hyperparameters,
    *,
    counts_on_host: bool = False,
) -> list[Cause]:
    """What a graph of `captured` would get wrong in the step `eager`; empty if nothing is known.

    `before` and `after` are the hyperparameters in these two steps. If one of them changed, it
    is named as the cause of a frozen value inside an optimizer. `counts_on_host`: others change.
    """
    common = _common(captured, eager)
    if common is None:
        return [_branch(captured, eager)]
    found = [Cause("unjoined_stream", where) for where in dict.fromkeys(captured.unjoined_streams)]
    changed = _changed_hyperparameters(before, after)
    frozen = _frozen_scalars(common)
    inside = [cause for cause, in_optimizer in frozen if in_optimizer]
    if inside and changed:
        found += [replace(cause, where=inside[0].where) for cause in changed]
    elif not counts_on_host:
        found += inside
    found += [cause for cause, in_optimizer in frozen if not in_optimizer]
    if runs_the_same(captured, eager):  # else the views are of other ops
        found += [
            Cause("cross_step_state", view.where, tensor=view.shape, origin=view.origin)
            for view in eager.views
            if view.origin is not None
        ]
    return list(dict.fromkeys(found))[:_MOST_NAMED]


def runs_the_same(captured: StepTrace, eager: StepTrace) -> bool:
    return [call.form for call in captured.calls] == [call.form for call in eager.calls]


def _common(captured: StepTrace, eager: StepTrace) -> list[tuple[Call, Call]] | None:
    """The ops of both steps in pairs; None if one of them took another path.

    Extra ops of one of them, as of a script that logs every so many steps, are no other path if
    nothing on the GPU uses their results.
    """
    fewer, more = sorted((captured, eager), key=lambda trace: len(trace.calls))
    both, extra = list[Call](), list[Call]()
    for call in more.calls:
        expected = fewer.calls[len(both)].form if len(both) < len(fewer.calls) else None
        (both if call.form == expected else extra).append(call)
    if len(both) < len(fewer.calls):
        return None
    used = frozenset[StorageRef]().union(*(call.reads | call.writes for call in both))
    for storage in frozenset[StorageRef]().union(*(call.writes for call in extra)):
        if storage in used or storage not in more.made or alive(storage) is not None:
            return None
    pairs = (fewer.calls, both) if fewer is captured else (both, fewer.calls)
    return list(zip(*pairs, strict=True))


def _branch(captured: StepTrace, eager: StepTrace) -> Cause:
    """The first op at which the two steps, which are not the same, differ."""
    pairs = zip_longest(captured.calls, eager.calls)
    before, after = next((a, b) for a, b in pairs if not (a and b and a.form == b.form))
    return Cause(
        "branch",
        (after or before).where,
        op=after.op if after else None,
        captured_op=before.op if before else None,
    )


def _frozen_scalars(common: list[tuple[Call, Call]]) -> list[tuple[Cause, bool]]:
    """Python values that changed at the same op, once per op and line; if in an optimizer."""
    found: dict[tuple[str, SourceLine | None], tuple[Cause, bool]] = {}
    for before, after in sorted(common, key=lambda pair: pair[1].in_backward):
        if after.in_backward and not all(in_optimizer for _, in_optimizer in found.values()):
            break  # a backward uses the numbers of its forward again
        for old, new in zip(before.scalars, after.scalars, strict=False):
            both_nan = old != old and new != new
            if old != new and not both_nan:
                cause = Cause("scalar", after.where, _number(old), _number(new), op=after.op)
                found.setdefault((after.op, after.where), (cause, after.in_optimizer))
                break
    return list(found.values())


def _changed_hyperparameters(before: Hyperparameters, after: Hyperparameters) -> list[Cause]:
    found: dict[tuple[str, str], Cause] = {}
    for key, new in after.items():
        old = before.get(key, new)
        if old != new:
            optimizer, _, name = key
            kind: CauseKind = "learning_rate" if name == "lr" else "hyperparameter"
            cause = Cause(kind, None, _number(old), _number(new), optimizer, name)
            found.setdefault((optimizer, name), cause)
    return list(found.values())


def _number(value: object) -> float | None:
    """The value as a float; None if it is no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(cast("float", value))
    return None
