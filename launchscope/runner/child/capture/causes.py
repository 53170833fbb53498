"""Finds why a replay is not the step that eager would run: what changed since the capture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import cast

from launchscope.model import Cause, CauseKind, SourceLine
from launchscope.runner.child.capture.step_trace import StepTrace
from launchscope.runner.child.plain_values import class_name, is_a, parameter_groups
from launchscope.runner.child.torch_types import Optimizer

_MOST_NAMED = 5

# By the optimizer's class, the number of the parameter group and the name in it.
Hyperparameters = dict[tuple[str, int, str], object]


def hyperparameters(optimizers: Iterable[Optimizer]) -> Hyperparameters:
    """Every Python number that the optimizers' parameter groups hold now."""
    found: Hyperparameters = {}
    groups = [(class_name(o), group) for o in optimizers for group in parameter_groups(o)]
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
) -> list[Cause]:
    """What a graph of `captured` would get wrong in the step `eager`; empty if nothing is known.

    `before` and `after` are the hyperparameters in these two steps. If one of them changed, it
    is named as the cause of a frozen value inside an optimizer.
    """
    branch = _branch(captured, eager)
    if branch is not None:
        return [branch]
    found = [Cause("unjoined_stream", where) for where in dict.fromkeys(captured.unjoined_streams)]
    changed = _changed_hyperparameters(before, after)
    frozen = _frozen_scalars(captured, eager)
    inside = [cause for cause, in_optimizer in frozen if in_optimizer]
    if inside and changed:
        found += [replace(cause, where=inside[0].where) for cause in changed]
    else:
        found += inside
    found += [cause for cause, in_optimizer in frozen if not in_optimizer]
    found += [
        Cause("cross_step_state", view.where, tensor=view.shape, origin=view.origin)
        for view in eager.views
        if view.origin is not None
    ]
    return list(dict.fromkeys(found))[:_MOST_NAMED]


def _branch(captured: StepTrace, eager: StepTrace) -> Cause | None:
    """The first op at which the two steps differ."""
    for before, after in zip_longest(captured.calls, eager.calls):
        if before is None:
            return Cause("branch", after.where, op=after.op)
        if after is None:
            return Cause("branch", before.where, captured_op=before.op)
        if before.form != after.form:
            return Cause("branch", after.where, op=after.op, captured_op=before.op)
    return None


def _frozen_scalars(captured: StepTrace, eager: StepTrace) -> list[tuple[Cause, bool]]:
    """Python values that changed at the same op, once per op and line; if in an optimizer."""
    found: dict[tuple[str, SourceLine | None], tuple[Cause, bool]] = {}
    for before, after in zip(captured.calls, eager.calls, strict=False):
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
    """None for what is no number."""
    if is_a(value, int, float) and not is_a(value, bool):
        return float(cast("float", value))
    return None
