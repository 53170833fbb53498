"""Every situation trains the same with an emulated graph as without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from launchscope.graph_step import GraphedStep, GraphedWarning, graphed
from tests import graphed_situations
from tests.graph_step.emulation import EmulatedGpu, gpu
from tests.graphed_situations import SITUATIONS, Situation

__all__ = ["gpu"]


@pytest.mark.parametrize("case", SITUATIONS.values(), ids=SITUATIONS)
def test_a_situation_trains_as_without_graphs(
    case: Situation, gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphed_situations, "DEVICE", "cpu")
    steps: list[GraphedStep[Any, Any]] = []

    def wrap(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        steps.append(graphed(**options)(function))
        return steps[-1]

    eager = case.run(lambda function, **_: function, 40)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replayed = case.run(wrap, 40)
    told = "\n".join(str(step.stats) for step in steps)
    assert replayed.losses == pytest.approx(eager.losses, rel=1e-3, abs=1e-5), told
    for ours, theirs in zip(replayed.weights, eager.weights):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-4)
    assert any(step.stats.replayed for step in steps) == case.replays, told
    mine = [w for w in caught if w.category is GraphedWarning]
    assert bool(mine) == case.warns, [str(w.message) for w in mine]
