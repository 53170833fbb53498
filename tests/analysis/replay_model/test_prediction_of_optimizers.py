"""The kernels that a capture adds to an optimizer, estimated from a trace alone."""

from __future__ import annotations

import pytest

from launchscope.analysis import profile_of_trace
from launchscope.analysis.replay_model.prediction import Optimizer, made_capturable
from tests.builders import TraceBuilder, loop_trace, work_of

ENGINE = 77  # the thread of the autograd engine
PARAMETERS = 40


def forward(builder: TraceBuilder) -> None:
    for _ in range(5):
        builder.op("aten::linear").launch()


def backward(builder: TraceBuilder, parameters: int = PARAMETERS) -> None:
    for _ in range(parameters):
        builder.op("aten::mm").launch(tid=ENGINE)
        builder.op("torch::autograd::AccumulateGrad").work(1)


def train(builder: TraceBuilder, backwards: int = 1, kernels: int = 12, kind: str = "AdamW",
          name: str = "multi_tensor_apply_kernel") -> None:  # fmt: skip
    for _ in range(backwards):
        forward(builder)
        backward(builder)
    step(builder, kernels, kind, name)


def step(builder: TraceBuilder, kernels: int, kind: str, name: str) -> None:
    def body(inner: TraceBuilder) -> None:
        for _ in range(kernels):
            inner.op("aten::_foreach_add_").launch(name=name)

    builder.optimizer(body, kind)


def found(builder: TraceBuilder) -> Optimizer:
    return made_capturable(work_of(builder))


def test_parameters_are_counted_by_their_gradients() -> None:
    assert found(loop_trace(4, train)) == Optimizer(PARAMETERS, 1)


@pytest.mark.parametrize("backwards", [2, 8])
def test_micro_batches_do_not_multiply_the_parameters(backwards: int) -> None:
    assert found(loop_trace(4, lambda b: train(b, backwards))) == Optimizer(PARAMETERS, 1)


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Lion", "Adam.custom"])
def test_an_optimizer_without_the_flag_gets_no_kernels(kind: str) -> None:
    assert found(loop_trace(4, lambda b: train(b, kind=kind))) == Optimizer()


def test_a_fused_optimizer_gets_no_kernels() -> None:
    name = "multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
    assert found(loop_trace(4, lambda b: train(b, kernels=2, name=name))) == Optimizer()


def test_an_optimizer_that_is_capturable_already_gets_no_more_kernels() -> None:
    assert found(loop_trace(4, lambda b: train(b, kernels=2 * PARAMETERS + 20))) == Optimizer()


def test_of_two_optimizers_each_has_the_gradients_before_its_own_step() -> None:
    def both(builder: TraceBuilder) -> None:
        train(builder, kind="SGD")
        forward(builder)
        backward(builder, 30)
        step(builder, 12, "Adam", "multi_tensor_apply_kernel")

    assert found(loop_trace(4, both)) == Optimizer(30, 1)


def test_a_note_names_the_kernels_that_a_capture_adds() -> None:
    notes = profile_of_trace(loop_trace(4, train).trace(), "t.json").notes
    assert any("88 kernels" in note and "40 parameters" in note for note in notes)
    plain = profile_of_trace(loop_trace(4, lambda b: train(b, kind="SGD")).trace(), "t.json").notes
    assert not any("capturable" in note for note in plain)
