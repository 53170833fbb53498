from __future__ import annotations

from launchscope.model import (
    Cause,
    Correctness,
    KernelChange,
    SourceLine,
    TensorShape,
    WorkComparison,
)
from launchscope.rules.findings.wrong_result import RULE
from tests.rules.cases import Case, replayed, verdict
from tests.rules.profiles import profile

WORK = WorkComparison(
    False, (KernelChange("softmax_warp", 247, 3100.0),), (KernelChange("flash", 12, 90),)
)
ONE = WorkComparison(False, (KernelChange("softmax", 1, 1.0),), ())
STATE = Cause(
    "cross_step_state",
    SourceLine("train.py", 22),
    tensor=TensorShape((8,), "float32"),
    origin="previous_step",
)
NUMBER = Cause("scalar", SourceLine("train.py", 25), op="aten.mul")
WRONG = replayed(correct=Correctness("different", 4, 0.44))
CASES = (
    Case(
        "adds 247 kernels (3,100 us) and leaves out 12 (90.0 us)",
        profile(replay=replayed(work=WORK)),
        profile(),
    ),
    Case("adds 1 kernel (1.00 us)", profile(replay=replayed(work=ONE)), profile()),
    Case("by up to 44 % of an update over 4 batches", profile(replay=WRONG), profile()),
    Case(
        "that the step before made",
        profile(replay=replayed(correct=Correctness("different", causes=(STATE,)))),
        profile(replay=replayed(correct=Correctness("different", causes=(NUMBER,)))),
    ),
)
SAME = ("out",)


def test_state_that_a_step_hands_on_is_to_be_updated_in_place() -> None:
    (finding,) = RULE.check(CASES[-1].fires)
    assert (finding.where, "in place" in finding.advice) == (STATE.where, True)


def test_the_verdict_names_the_rules_of_the_causes_in_their_order() -> None:
    both = Correctness("different", causes=(NUMBER, STATE))
    assert verdict(profile(replay=replayed(correct=both))).because == ("LS035", "LS033", "LS001")
