"""Calls an optimizer's step() again, eagerly, where it failed in a capture."""

from __future__ import annotations

import contextlib
import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

from launchscope.runner.child.plain_values import (
    parameters_with_state,
    values_of,
)
from launchscope.runner.child.torch_types import Function, Optimizer, Value


def retried(
    optimizers: Iterable[Optimizer], resume: Callable[[Exception, list[Value]], bool]
) -> contextlib.ExitStack:
    """Until the result is closed, a step() that raises is called again if `resume(error, held)` is
    true. `held` are the parameters and whatever else the optimizer holds from the beginning, whose
    content `resume` has to leave as it was before the step(). What it got since, as a fused one
    gets a scale from a GradScaler, has no content before the graph is replayed.

    It is not asked where the optimizer holds other objects than before (a number, a new tensor), or
    where the step() gets a closure, which would run the model again.
    """
    undo = contextlib.ExitStack()
    for optimizer in optimizers:
        attributes: dict[str, Value] = optimizer.__dict__
        before = attributes.get("step")  # a scheduler has put it there
        method: Function = getattr(type(optimizer), "step", None)
        if before is None and type(method) is not types.FunctionType:
            continue
        ours = _retried(optimizer, before or types.MethodType(method, optimizer), resume)
        attributes["step"] = ours
        undo.callback(_take_back, attributes, ours, before)
    return undo


def _take_back(attributes: dict[str, Value], ours: Function, before: Function) -> None:
    if attributes.get("step") is ours:  # else somebody has put something there meanwhile
        attributes["step"] = before
        if before is None:
            del attributes["step"]


def _retried(
    optimizer: Optimizer, original: Function, resume: Callable[[Exception, list[Value]], bool]
) -> Function:
    known = {id(one): one for one in _held(optimizer)}  # alive, so that no other gets its identity

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Value:
        if args or kwargs:
            return original(*args, **kwargs)
        before = _held(optimizer)
        try:
            return original()
        except Exception as error:
            now = _held(optimizer)
            same = len(now) == len(before) and all(map(operator.is_, now, before))
            old = [one for one in now if id(one) in known]
            if not same or not resume(error, old):
                raise
        return original()

    return step


def _held(optimizer: Optimizer) -> list[Value]:
    held = list(vars(optimizer).values())
    for group, parameter, state in parameters_with_state(optimizer):
        held += [parameter, *values_of(group), *values_of(state)]
    return held
