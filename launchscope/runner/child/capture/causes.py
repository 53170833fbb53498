"""Why a replay is not the step that eager would run: what changed since the capture, named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from launchscope.model import Cause, SourceLine
from launchscope.runner.child.capture.step_trace import Scalar, StepTrace

_MOST_NAMED = 5
# Hyper-parameters by the words people use for them.
_WORDS = {"lr": "learning rate", "weight_decay": "weight decay", "betas": "betas"}

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
    found = [
        Cause("stream", "work on a stream that was not forked from the capture's", where)
        for where in dict.fromkeys(captured.unforked)
    ]
    named = _changed_hyperparameters(before, after)
    frozen = _frozen_scalars(captured, eager)
    inside = [cause for cause, in_optimizer in frozen if in_optimizer]
    if inside and named:
        found += [replace(cause, where=inside[0].where) for cause in named]
    else:
        found += inside
    found += [cause for cause, in_optimizer in frozen if not in_optimizer]
    for view in eager.views:
        if view.carried is not None:
            found.append(Cause("carried", view.carried, view.where))
    return list(dict.fromkeys(found))[:_MOST_NAMED]


def _branch(captured: StepTrace, eager: StepTrace) -> Cause | None:
    """The first op at which the two steps part."""
    for before, after in zip(captured.calls, eager.calls, strict=False):
        if before.form != after.form:
            what = (
                f"the step ran {after.op} where the captured one ran {before.op}"
                if before.op != after.op
                else f"{after.op} met other shapes than in the captured step"
            )
            return Cause("branch", what, after.where)
    shorter = min(len(captured.calls), len(eager.calls))
    longer = max(captured.calls, eager.calls, key=len)
    if len(longer) == shorter:
        return None
    more = longer is eager.calls
    what = (
        f"the step ran {longer[shorter].op}, which the captured one did not"
        if more
        else f"the step left out {longer[shorter].op} of the captured one"
    )
    return Cause("branch", what, longer[shorter].where)


def _frozen_scalars(captured: StepTrace, eager: StepTrace) -> list[tuple[Cause, bool]]:
    """Python values that changed at the same op; once for each op and line."""
    found: dict[tuple[str, SourceLine | None], tuple[Cause, bool]] = {}
    for before, after in zip(captured.calls, eager.calls, strict=False):
        for old, new in zip(before.scalars, after.scalars, strict=False):
            if not _same(old, new):
                cause = Cause(
                    "scalar", f"a value given to {after.op}", after.where, *_pair(old, new)
                )
                found.setdefault((after.op, after.where), (cause, after.in_optimizer))
                break
    return list(found.values())


def _changed_hyperparameters(before: Hyperparameters, after: Hyperparameters) -> list[Cause]:
    found: dict[tuple[str, str], Cause] = {}
    for key, new in after.items():
        old = before.get(key, new)
        if old != new:
            optimizer, _, name = key
            what = f"the {_WORDS.get(name, name)} of {optimizer}"
            kind: Any = "learning_rate" if name == "lr" else "hyperparameter"
            found.setdefault(
                (optimizer, name), Cause(kind, what, None, *_pair(old, new), optimizer)
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
