"""Every situation trains the same with an emulated graph as without, and needs its guard."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from launchscope.graphed import GraphedStep, GraphedWarning, graphed
from launchscope.graphed import step as graphed_step
from tests import graphed_situations
from tests.graphed.emulation import EmulatedGpu, gpu
from tests.graphed_situations import SITUATIONS, Situation, Trajectory, as_it_is

__all__ = ["gpu"]
pytestmark = pytest.mark.slow
STEPS = 28
# Of the optimizers, one of each kind; the campaign trains with all.
KINDS = ("sgd", "adam", "adamw_fused", "adagrad", "nadam", "adadelta_no_foreach")


def is_one_more_optimizer(name: str) -> bool:
    prefix = next((p for p in ("optimizer_", "moving_rate_") if name.startswith(p)), None)
    return prefix is not None and name.removeprefix(prefix) not in KINDS


CASES = [
    pytest.param(case, marks=pytest.mark.campaign if is_one_more_optimizer(name) else (), id=name)
    for name, case in SITUATIONS.items()
]


@cache
def eager(case: Situation) -> Trajectory:
    return case.run(as_it_is, STEPS)


@pytest.fixture(autouse=True)
def on_the_cpu(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed_situations, "DEVICE", "cpu")
    monkeypatch.setattr(graphed_situations, "CAPTURING", gpu.capturing)
    monkeypatch.setattr(graphed_step, "_MOST_MISSES", 12)


def check(case: Situation) -> None:
    """The situation trains as eagerly, and says why calls are eager, in exactly one warning."""
    steps: list[GraphedStep[Any, Any]] = []

    def wrap(step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        steps.append(graphed(**options)(step))
        return steps[-1]

    expected = eager(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replayed = case.run(wrap, STEPS)
    told = "\n".join(str(step.stats) for step in steps)
    assert replayed.losses == pytest.approx(expected.losses, rel=1e-3, abs=1e-4), told
    for ours, theirs in zip(replayed.weights, expected.weights):
        difference = (ours.double() - theirs.double()).norm()
        # An optimizer that a graph contains computes in another order: `capturable`.
        assert difference <= 1e-3 * theirs.double().norm() + 1e-6, told
    assert any(step.stats.replayed for step in steps) == case.replays, told
    codes = {reason.code for step in steps for reason in step.stats.reasons} - {"warmup"}
    assert codes == {case.code} - {None}, told
    mine = [str(w.message) for w in caught if w.category is GraphedWarning]
    assert len(mine) == (case.code is not None), mine


@pytest.mark.parametrize("case", CASES)
def test_a_situation_trains_as_without_graphs(case: Situation) -> None:
    check(case)
