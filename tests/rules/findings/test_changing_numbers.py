from __future__ import annotations

import pytest

from launchscope.model import Cause, Correctness, Profile, SourceLine
from launchscope.rules.findings.changing_numbers import RULE
from tests.rules.cases import Case, replayed
from tests.rules.profiles import profile

RATE = Cause("learning_rate", SourceLine("train.py", 30), 0.1, 0.09, "SGD", "lr")
SCALE = Cause("scalar", SourceLine("train.py", 25), 1.0, 0.5, op="aten.mul")
MOMENTUM = Cause("hyperparameter", None, 0.9, 0.8, "SGD", "momentum")


def frozen(*causes: Cause) -> Profile:
    return profile(replay=replayed(correct=Correctness("different", 4, 0.44, causes=causes)))


def live(*optimizers: str) -> Profile:
    return profile(facts={"scheduler_live": True, "optimizer_classes": optimizers})


CASES = (
    Case("a capture freezes it", live("SGD", "Adam"), profile()),
    Case("The learning rate of SGD changes (from 0.1 to 0.09)", frozen(RATE, SCALE), profile()),
    Case("momentum", frozen(MOMENTUM), profile()),
)


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("AdamW", "capturable=True"),
        ("SGD", "fused=True"),
        ("Adagrad", "only forward and backward"),
        ("RMSprop", "capturable=True"),
    ],
)
def test_scheduler_advice_is_given_per_optimizer(optimizer: str, said: str) -> None:
    (finding,) = RULE.check(live(optimizer))
    assert said in finding.advice


def test_each_number_that_a_capture_froze_is_named_with_its_line_and_remedy() -> None:
    rate, scale = RULE.check(frozen(RATE, SCALE))
    assert [rate.where, scale.where] == [RATE.where, SCALE.where]
    assert rate.title == (
        "The learning rate of SGD changes (from 0.1 to 0.09), and a capture freezes it"
    )
    assert "fused=True" in rate.advice
    assert "fill_()" in scale.advice


def test_a_batch_that_the_step_selects_is_reported_once_with_what_to_do() -> None:
    picked = [Cause("scalar", SourceLine("t.py", 9), 7.0, n, op="aten.select") for n in (0.0, 1.0)]
    finding, _ = RULE.check(frozen(*picked, SCALE))
    assert finding.where == SourceLine("t.py", 9)
    assert "Select it before the step" in finding.advice
