"""Why a replay is not the step that eager would run: what changed since the capture, named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from launchscope.model import Cause, CauseKind, SourceLine
from launchscope.runner.child.capture.step_trace import Scalar, StepTrace

_MOST_NAMED = 5

Hyperparameters = dict[tuple[str, int, str], Any]


def hyperparameters(optimizers: Iterable[Any]) -> Hyperparameters:
    """Every Python number that the optimizers' parameter groups hold now."""
    found: Hyperparameters = {}
    groups = [(type(o).__name__, group) for o in optimizers for group in o.param_groups]
    for index, (optimizer, group) in enumerate(groups):  # two optimizers may be of one class
        for name, value in group.items():
            numbers = value if isinstance(value, tuple | list) else (value,)
            if name != "params" and all(_is_number(number) for number in numbers):
                found[optimizer, index, name] = value
    return found


def causes_between(
    captured: StepTrace,
    eager: StepTrace,
    before: Hyperparameters,
    after: Hyperparameters,
) -> list[Cause]:
    """What a graph of `captured` would get wrong in the step `eager`; empty if nothing was seen.

    `before` and `after` are the optimizers' hyper-parameters in these two steps. A frozen
    value inside an optimizer is put down to the hyper-parameter that changed, if one did.
    """
    branch = _branch(captured, eager)
    if branch is not None:
        return [branch]
    found = [Cause("unjoined_stream", where) for where in dict.fromkeys(captured.unjoined_streams)]
    named = _changed_hyperparameters(before, after)
    frozen = _frozen_scalars(captured, eager)
    inside = [cause for cause, in_optimizer in frozen if in_optimizer]
    if inside and named:
        found += [replace(cause, where=inside[0].where) for cause in named]
    else:
        found += inside
    found += [cause for cause, in_optimizer in frozen if not in_optimizer]
    for view in eager.views:
        if view.origin is not None:
            found.append(
                Cause("cross_step_state", view.where, tensor=view.shape, origin=view.origin)
            )
    return list(dict.fromkeys(found))[:_MOST_NAMED]


def _branch(captured: StepTrace, eager: StepTrace) -> Cause | None:
    """The first op at which the two steps part."""
    for before, after in zip(captured.calls, eager.calls, strict=False):
        if before.form != after.form:
            return Cause("branch", after.where, op=after.op, captured_op=before.op)
    shorter = min(len(captured.calls), len(eager.calls))
    longer = max(captured.calls, eager.calls, key=len)
    if len(longer) == shorter:
        return None
    call, more = longer[shorter], longer is eager.calls
    return Cause(
        "branch",
        call.where,
        op=call.op if more else None,
        captured_op=None if more else call.op,
    )


def _frozen_scalars(captured: StepTrace, eager: StepTrace) -> list[tuple[Cause, bool]]:
    """Python values that changed at the same op; once for each op and line."""
    found: dict[tuple[str, SourceLine | None], tuple[Cause, bool]] = {}
    for before, after in zip(captured.calls, eager.calls, strict=False):
        for old, new in zip(before.scalars, after.scalars, strict=False):
            if not _same(old, new):
                cause = Cause("scalar", after.where, *_pair(old, new), op=after.op)
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
            found.setdefault(
                (optimizer, name), Cause(kind, None, *_pair(old, new), optimizer, name)
            )
    return list(found.values())


def _pair(old: Any, new: Any) -> tuple[float | None, float | None]:
    """Both as numbers, where they are."""
    return tuple(float(v) if _is_number(v) else None for v in (old, new))  # type: ignore[return-value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(old: Scalar, new: Scalar) -> bool:
    both_nan = isinstance(old, float) and isinstance(new, float) and math.isnan(old)
    return old == new or (both_nan and math.isnan(float(new)))  # type: ignore[arg-type]
