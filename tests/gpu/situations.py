"""Each situation of `graphed_situations.py` on a GPU, with graphs and without.

It trains four times: eagerly, eagerly again (eager's own noise), eagerly with the optimizers in the
form that a graph contains (the exact reference where that form differs from the script's), and
graphed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from launchscope.graphed import GraphedStep, GraphedWarning, graphed, judgment
from launchscope.graphed.arguments import unflatten
from launchscope.graphed.program import Program
from tests.graphed_situations import SITUATIONS, Trajectory


class EagerInForm(Program):
    """In place of a graph: runs the step eagerly, with the optimizers as a graph contains them."""

    def capture(self, function: Callable[..., Any], form: Any) -> Any:
        self._call = function, form
        self._result = self._run(self._leaves)
        return self._result

    def _run(self, leaves: list[Any]) -> Any:
        function, form = self._call
        args, kwargs = unflatten(form, iter(leaves))
        optimizers = self.kind.form
        optimizers.refresh()
        device = optimizers.on_device
        before = None if device is None else device.clone()
        with optimizers:
            result = function(*args, **kwargs)
        if before is not None and device is not None:
            optimizers.count((device - before).cpu())
        return result

    def run_last(self) -> None: ...

    def replay(self, leaves: list[Any], current: list[Any], copied: bool) -> Any:
        return self._run(leaves)

    def outputs(self, leaves: list[Any], copied: bool) -> Any:
        return self._result

    def release(self) -> None: ...


def distance(one: Trajectory, other: Trajectory) -> float:
    """The largest relative difference of the weights; 0.0 only if all losses and weights are equal
    bit for bit."""
    weights = list(zip(one.weights, other.weights, strict=True))
    both = [(torch.tensor(one.losses), torch.tensor(other.losses)), *weights]
    if all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in both):
        return 0.0
    found = [
        float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12))
        for a, b in weights
    ]
    return max(1e-12, *found)


def train(name: str, steps: int, how: str) -> tuple[Trajectory, list[GraphedStep[Any, Any]]]:
    """One run of a situation, with its graphed steps. `how` is eager, form or graphed."""
    made: list[GraphedStep[Any, Any]] = []

    def wrap(step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if how == "eager":
            return step
        checked = {**options, "check": 0} if how == "form" else options
        made.append(graphed(**checked)(step))
        return made[-1]

    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphedWarning)
        if how == "form":
            patched.setattr(judgment, "Program", EagerInForm)
        return SITUATIONS[name].run(wrap, steps), made


def check(name: str, steps: int) -> None:
    """With graphs the situation trains as eagerly: bit for bit as eagerly or as in form, or no
    further from eager than ten times what two eager runs differ by."""
    (eager, _), (again, _) = (train(name, steps, "eager") for _ in range(2))
    replayed, made = train(name, steps, "graphed")
    told = "\n".join(str(step.stats) for step in made)
    assert any(step.stats.replayed for step in made) == SITUATIONS[name].replays, told
    codes = {reason.code for step in made for reason in step.stats.reasons} - {"warmup"}
    assert codes == {SITUATIONS[name].code} - {None}, told
    if distance(replayed, eager) > 10 * distance(again, eager):
        assert distance(replayed, train(name, steps, "form")[0]) == 0.0, told
