"""Patches that go wrong in silence, as a graph without guards would: the comparison has to see it.

Each wraps the calls of the graphed function, from one on at which a capture could happen.
"""

from __future__ import annotations

from typing import Any

from launchscope.adopt.child.state import TrainingState
from launchscope.adopt.observation import MUTANT_FROM
from launchscope.model import Mutant
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Torch, Value


class MutantCalls:
    """Calls a function as the mutant of it that `kind` names."""

    def __init__(self, torch: Torch, kind: Mutant, state: TrainingState):
        self._torch, self._kind, self._state = torch, kind, state
        self._calls = 0
        self._first: Any = None  # what is used for good

    def call(self, function: Function, args: Args, kwargs: Kwargs) -> Value:
        self._calls += 1
        if self._calls < MUTANT_FROM:
            return function(*args, **kwargs)
        match self._kind:
            case "stale_batch":
                return self._with_first_batch(function, args, kwargs)
            case "frozen_rate":
                return self._with_first_rates(function, args, kwargs)
            case "repeated_random":
                return self._with_first_numbers(function, args, kwargs)
            case "left_out":
                if self._calls == MUTANT_FROM:
                    self._first = function(*args, **kwargs)
                return self._first

    def _with_first_batch(self, function: Function, args: Args, kwargs: Kwargs) -> Value:
        from torch.utils import _pytree

        torch = self._torch
        leaves, form = _pytree.tree_flatten((args, kwargs))
        if self._first is None:
            self._first = [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]
        olds = [*self._first, *leaves[len(self._first) :]]  # a cache may have grown
        used = [
            old if isinstance(new, torch.Tensor) and new.shape == old.shape else new
            for new, old in zip(leaves, olds)
        ]
        args, kwargs = _pytree.tree_unflatten(used, form)
        return function(*args, **kwargs)

    def _with_first_rates(self, function: Function, args: Args, kwargs: Kwargs) -> Value:
        torch = self._torch
        groups = [g for _, o in self._state.optimizers() for g in o.param_groups if "lr" in g]
        now = [g["lr"].clone() if isinstance(g["lr"], torch.Tensor) else g["lr"] for g in groups]
        if self._first is None:
            self._first = now
        self._set(groups, self._first)
        try:
            return function(*args, **kwargs)
        finally:
            self._set(groups, now)

    def _set(self, groups: list[dict[str, Any]], rates: list[Any]) -> None:
        for group, rate in zip(groups, rates):
            if isinstance(group["lr"], self._torch.Tensor):
                group["lr"].copy_(rate)
            else:
                group["lr"] = rate

    def _with_first_numbers(self, function: Function, args: Args, kwargs: Kwargs) -> Value:
        torch = self._torch
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        get = torch.cuda.get_rng_state if on_gpu else torch.get_rng_state
        put = torch.cuda.set_rng_state if on_gpu else torch.set_rng_state
        if self._first is None:
            self._first = get()
        before = get()
        put(self._first)
        try:
            return function(*args, **kwargs)
        finally:
            put(before)  # what else draws from it goes on
