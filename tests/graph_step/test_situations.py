"""Every situation trains the same with an emulated graph as without, and needs its guard."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from launchscope import graph_step
from launchscope.graph_step import GraphedStep, GraphedWarning, graphed
from tests import graphed_situations
from tests.graph_step.emulation import EmulatedGpu, gpu
from tests.graphed_situations import SITUATIONS, Situation, Trajectory, as_it_is

__all__ = ["gpu"]
pytestmark = pytest.mark.slow
STEPS = 28


@cache
def eager(case: Situation) -> Trajectory:
    return case.run(as_it_is, STEPS)


@pytest.fixture(autouse=True)
def on_the_cpu(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed_situations, "DEVICE", "cpu")
    monkeypatch.setattr(graphed_situations, "CAPTURING", gpu.capturing)
    monkeypatch.setattr(graph_step, "_MOST_MISSES", 12)


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


@pytest.mark.parametrize("case", SITUATIONS.values(), ids=SITUATIONS)
def test_a_situation_trains_as_without_graphs(case: Situation) -> None:
    check(case)


def nothing(*args: Any, **kwargs: Any) -> None: ...


def always(*args: Any, **kwargs: Any) -> bool:
    return True


def without_part(number: int) -> Callable[..., Any]:
    """The key of a call less one of its parts."""
    whole = graph_step._key

    def key(*args: Any) -> Any:
        parts = list(whole(*args))
        del parts[number]
        return tuple(parts)

    return key


def judged(change: Callable[[Any], None]) -> Callable[..., None]:
    """The judgment of a watched call of which something was not seen."""
    whole = GraphedStep._judge

    def judge(step: Any, key: Any, kind: Any, watch: Any, *rest: Any) -> None:
        change(watch)
        whole(step, key, kind, watch, *rest)

    return judge


@dataclass(frozen=True)
class Removal:
    """A guard that is taken away, and a situation that needs it."""

    owner: Any
    name: str
    instead: Any
    situation: str


STEP, GUARD, KIND = GraphedStep, graph_step._Guard, graph_step._Kind
WATCH, FORM, PROGRAM = graph_step._Watch, graph_step._Form, graph_step._Program
SAVED, CAPTURE = graph_step.SavedState, graph_step.GraphCapture
REMOVALS = [
    Removal(GUARD, "_read", lambda self: [], "an_attribute_that_the_forward_reads"),
    Removal(GUARD, "_read", lambda self: [], "a_setting_in_a_dictionary"),
    Removal(GUARD, "_read", lambda self: [], "weight_decay_set_by_hand"),
    Removal(GUARD, "_read", lambda self: [], "train_and_eval_mode_in_turn"),
    Removal(GUARD, "_read", lambda self: [], "an_attribute_of_a_base_class"),
    Removal(GUARD, "_read", lambda self: [], "a_global_of_another_function"),
    Removal(GUARD, "alive", always, "parameters_given_other_memory"),
    Removal(GUARD, "alive", always, "state_loaded_after_the_capture"),
    Removal(GUARD, "alive", always, "state_assigned_after_the_capture"),
    Removal(graph_step, "_pointer", lambda tensor: 0, "parameters_given_other_memory"),
    Removal(graph_step, "_requires_grad", nothing, "frozen_layers_that_thaw"),
    Removal(GUARD, "hooks_hold", always, "a_hook_added_late"),
    Removal(graph_step, "_hook_tables", lambda *owners: iter(()), "a_hook_that_counts"),
    Removal(graph_step, "_hook_tables", lambda *owners: iter(()), "a_hook_removed_late"),
    Removal(graph_step, "_hook_tables", lambda *owners: iter(()), "a_value_of_a_hook_that_changes"),
    Removal(KIND, "_gradients_hold", always, "accumulation_over_calls"),
    Removal(graph_step, "_key", without_part(0), "changing_batch_sizes"),
    Removal(graph_step, "_key", without_part(0), "a_dictionary_of_tensors"),
    Removal(graph_step, "_key", without_part(2), "grad_and_no_grad_in_turn"),
    Removal(graph_step, "_key", without_part(4), "autocast_in_turn"),
    Removal(graph_step, "_key", without_part(0), "arguments_that_share_memory"),
    Removal(graph_step, "_impure", nothing, "prints"),
    Removal(graph_step, "_impure", nothing, "reads_the_clock"),
    Removal(GUARD, "difference", nothing, "appends_to_a_list"),
    Removal(GUARD, "difference", nothing, "counts_in_an_attribute"),
    Removal(graph_step, "_hypers", lambda _: {}, "scheduler_cosine"),
    Removal(WATCH, "_blocker", nothing, "reads_a_value"),
    Removal(WATCH, "_blocker", nothing, "a_shape_that_depends_on_values"),
    Removal(STEP, "_judge", judged(lambda w: w.external.clear()),
            "a_tensor_that_is_another_in_each_call"),
    Removal(STEP, "_judge", judged(lambda w: setattr(w, "signature", 0)),
            "draws_from_a_random_object"),
    Removal(graph_step, "_plain_outputs", lambda *_: [], "returns_a_number_that_changes"),
    Removal(WATCH, "_on_backward", nothing, "a_loss_returned_with_its_graph"),
    Removal(FORM, "refresh", nothing, "scheduler_cosine"),
    Removal(FORM, "count", nothing, "resumed_into_eager"),
    Removal(FORM, "__enter__", nothing, "optimizer_adam"),
    Removal(graph_step, "_set_scaler_state", nothing, "scaler_eager_that_unscales_and_clips"),
    Removal(CAPTURE, "_repair_generators", nothing, "a_capture_that_fails"),
    Removal(SAVED, "restore", nothing, "checked_at_every_tenth_replay"),
    Removal(PROGRAM, "run_last", nothing, "optimizer_adamw_fused"),
]  # fmt: skip


@pytest.mark.parametrize(
    "removal", REMOVALS, ids=[f"{r.name.strip('_')}-{r.situation}" for r in REMOVALS]
)
def test_without_its_guard_a_situation_goes_wrong(
    removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager(SITUATIONS[removal.situation])
    monkeypatch.setattr(removal.owner, removal.name, removal.instead)
    with pytest.raises((AssertionError, RuntimeError)):
        check(SITUATIONS[removal.situation])
