"""The events of a step in words, with repeated rounds written once."""

from __future__ import annotations

import pytest

from launchscope.model import StepBoundary, step_summary


def summary(*events: str) -> str:
    pairs = [event.partition(" ") for event in events]
    return step_summary(
        StepBoundary(
            "period",
            tuple(event for event, _, _ in pairs),
            tuple(name for _, _, name in pairs),
            "full_step",
        )
    )


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            ("forward GPT", "backward", "optimizer AdamW"),
            "forward GPT > backward > optimizer AdamW",
        ),
        (("forward Net",) * 12, "forward Net x12"),
        (
            (*("forward Net", "backward") * 4, "optimizer SGD"),
            "(forward Net > backward) x4 > optimizer SGD",
        ),
        (
            ("forward D", "forward D", "backward", "optimizer Adam", "forward D", "backward"),
            "forward D x2 > backward > optimizer Adam > forward D > backward",
        ),
        (("optimizer LBFGS",), "optimizer LBFGS"),
        ((), ""),
    ],
)
def test_rounds_that_repeat_are_written_once(events: tuple[str, ...], text: str) -> None:
    assert summary(*events) == text


def test_an_optimizer_that_calls_its_closure_contains_the_rest() -> None:
    step = StepBoundary("period", ("optimizer",), ("Adam",), "full_step", closure=True)
    assert step_summary(step) == "optimizer Adam, with forward and backward inside"
