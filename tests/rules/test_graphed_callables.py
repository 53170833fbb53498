"""make_graphed_callables is offered where it takes the model as the step calls it, and not else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launchscope.model import ModelCall, Profile, StepBoundary
from launchscope.rules.how import how_to
from tests.rules.profiles import profile

PLAIN = ModelCall("GPT", times=1, arguments=1)


def called(*calls: ModelCall, **changes: Any) -> str:
    """The step of the instructions that tells the alternatives."""
    how = how_to(profile(facts={"model_calls": calls}, **changes), "adopt") or ""
    return next(line for line in how.splitlines() if "Instead: " in line)


def test_a_model_that_takes_tensors_by_position_may_be_graphed() -> None:
    text = called(PLAIN)
    assert "`torch.cuda.make_graphed_callables(model, (sample,))` if the loss" in text
    assert called(replace(PLAIN, arguments=2)).count("(sample_1, sample_2)") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"keywords": ("labels",)}, "GPT is called with `labels` by keyword"),
        ({"others": ("int",)}, "GPT is called with values of type int, and it takes tensors only"),
        ({"others": ("NoneType",)}, "GPT is called with None, and it takes tensors only"),
        ({"outputs": ("Output",)}, "GPT returns values of type Output"),
        ({"hooks": True}, "GPT has hooks, which may be registered only after it is made"),
        ({"trained_buffers": True}, "GPT has buffers that require gradients"),
    ],
)
def test_where_it_refuses_it_is_not_offered_and_the_reason_is_told(
    change: dict[str, Any], says: str
) -> None:
    text = called(replace(PLAIN, **change))
    assert f"`torch.cuda.make_graphed_callables` does not fit: {says}" in text
    assert "(sample" not in text


def test_a_model_called_twice_before_a_backward_would_lose_what_the_first_call_kept() -> None:
    twice = replace(PLAIN, times=2)
    base = profile().step
    assert base is not None
    names = ("GPT", "GPT", "", "AdamW")
    step = replace(base, period=("forward", "forward", "backward", "optimizer"), names=names)
    assert "GPT is called again before the backward" in called(twice, step=step)
    between = replace(
        base,
        period=("forward", "backward") * 2 + ("optimizer",),
        names=("GPT", "", "GPT", "", "AdamW"),
    )
    assert "does not fit" not in called(twice, step=between)
    assert "does not fit" not in called(twice, step=StepBoundary("period", (), (), "forward"))


def test_of_two_models_the_one_that_fits_is_named() -> None:
    text = called(PLAIN, ModelCall("Critic", 1, 1, hooks=True))
    assert "(for GPT alone: Critic has hooks" in text


def test_what_has_to_be_set_around_it_is_told() -> None:
    assert "torch.autocast with cache_enabled=False" in called(replace(PLAIN, autocast=True))
    assert "at the capture only" in called(replace(PLAIN, inner_hooks=True))
    ranks = replace(profile().environment, world_size=2)
    assert "num_warmup_iters=11" in called(PLAIN, environment=ranks)


def test_where_the_calls_are_not_known_it_says_when_they_fit() -> None:
    assert "has no hooks and takes and returns tensors only, by position" in called()


def smaller(call: ModelCall) -> Profile:
    base = profile(facts={"model_calls": (call,)})
    return replace(base, replay=replace(base.replay, scope="forward_backward"))


def test_forward_and_backward_are_captured_by_hand_where_it_refuses() -> None:
    code = (how_to(smaller(PLAIN), "adopt") or "").partition("\n\n")[2]
    assert "make_graphed_callables(model, (sample,))" in code
    code = (how_to(smaller(replace(PLAIN, hooks=True)), "adopt") or "").partition("\n\n")[2]
    compile(code, "recipe", "exec")
    assert "make_graphed_callables" not in code
    assert code.endswith("holds this step's value\n    optimizer.step()")
    assert "zero_grad" not in code.partition("from here on no zero_grad")[2].partition("\n")[2]
