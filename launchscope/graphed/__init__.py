"""`graphed`: a training or inference step as one CUDA graph, replayed only while nothing changed.
It needs torch 2.6 or later and nothing else, so this folder can be copied beside a script.
`LAUNCHSCOPE_GRAPHED=0` in the environment turns it off."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .lines import LineRecord
from .stats import EagerReason, GraphedError, GraphedWarning, Stats
from .step import GraphedStep, Options

__all__ = [
    "EagerReason",
    "GraphedError",
    "GraphedStep",
    "GraphedWarning",
    "LineRecord",
    "Stats",
    "graphed",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def graphed(step: Callable[P, R], /) -> GraphedStep[P, R]: ...
@overload
def graphed(**options: Any) -> Callable[[Callable[P, R]], GraphedStep[P, R]]: ...
def graphed(step: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Replay `step` as a CUDA graph wherever that gives what an eager call would give.

    At least `warmup` calls (3) run eagerly first. Up to `max_graphs` graphs (8) are held, one per
    kind of call. With `copy_outputs=False` a call returns the graph's own tensors, which the next
    call overwrites. Replays 1, 10, 100, and then about one in 1,000, are also computed eagerly from
    the same state and compared; `check=N` checks every Nth replay, and `check=0` none. A difference
    turns the step to eager for good with a warning; `on_difference="raise"` raises GraphedError.
    Raises ValueError for settings out of range.

    Where the step communicates with other ranks, each rank has to call it equally often. A rank
    waits for the others for `timeout_s` at most (300). Where one replays a call that another one
    cannot replay, the call raises GraphedError, because what they exchange would not fit together.
    """
    settings = Options(**options)

    def wrap(function: Callable[..., Any]) -> GraphedStep[Any, Any]:
        return GraphedStep(function, settings)

    return wrap if step is None else wrap(step)


class _Callable(types.ModuleType):
    """`from launchscope import graphed` gives this module, which has the function's name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return graphed(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
