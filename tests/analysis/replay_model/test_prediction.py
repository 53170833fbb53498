"""What a replay would take: the model's parts, each with a known answer, and its bounds."""

from __future__ import annotations

import pytest

from launchscope.analysis.replay_model.prediction import Optimizer, StepWork, predict, step_work
from tests.builders import TraceBuilder, trace, work_of

# Measured on an H200: work of the eager step under the capture's flags, and its replay in ms.
MEASURED = {
    "handwritten_sgd": (StepWork(0.0656, 0.0656, 39, 2), 0.0730),
    "lstm": (StepWork(0.9147, 0.3396, 98, 1), 0.9265),
    "small_gpt": (StepWork(1.7687, 1.7687, 549, 37), 1.8323),
    "wide_mlp": (StepWork(22.6057, 22.6057, 48, 7), 22.601),
}


def step_work_of(built: TraceBuilder) -> StepWork:
    found = step_work(work_of(built))
    assert found is not None
    return found


@pytest.mark.parametrize("name", MEASURED)
def test_the_model_comes_close_to_the_replays_of_the_samples(name: str) -> None:
    work, replay_ms = MEASURED[name]
    found = predict(work)
    assert found.ms == pytest.approx(replay_ms, rel=0.1)
    assert found.low_ms <= replay_ms <= found.high_ms


def test_an_optimizer_that_has_to_become_capturable_adds_its_kernels() -> None:
    work = StepWork(1.0, 1.0, 100, 0)
    plain, made = predict(work), predict(work, Optimizer(tensors=20, groups=1))
    assert made.ms - plain.ms == pytest.approx(48 * 1.06e-3)
    assert made.low_ms > plain.low_ms


def test_a_busier_single_stream_bounds_a_step_of_several_from_below() -> None:
    built = trace()
    for _ in range(2):
        built.step()
        for _ in range(3):
            built.launch(100, stream=13).work(200).launch(50, stream=14).work(200)
    work = step_work_of(built)
    assert work.busy_ms == pytest.approx(0.45)
    assert work.least_ms == pytest.approx(0.3)
    assert predict(work).low_ms == pytest.approx(0.3 * 0.97)
    assert predict(work).ms > 0.45


def test_work_that_was_queued_long_before_begins_no_sooner_in_a_replay() -> None:
    built = trace()
    for _ in range(2):
        built.step()
        for _ in range(3):
            built.launch(100, 200, stream=13).launch(50, 300, stream=14).work(700)
    work = step_work_of(built)
    assert work.least_ms == pytest.approx(work.busy_ms)


def test_copies_and_sets_are_not_counted_as_kernels() -> None:
    built = trace()
    for _ in range(2):
        built.step().launch(5).memset(2).launch(5)
    work = step_work_of(built)
    assert (work.kernels, work.copies) == (2, 1)
    more = predict(StepWork(work.busy_ms, work.busy_ms, 3, 0)).ms
    assert predict(work).ms > more
