"""The steps that a verdict gives: their order, what they name, and how many there are."""

from __future__ import annotations

import pytest

from launchscope.model import Reason, Replay, SourceLine
from tests.rules.cases import replayed, shapes, verdict
from tests.rules.profiles import item_blocker, library_blocker, predicted, profile


@pytest.mark.parametrize(
    ("scope", "what"),
    [
        ("full_step", "the step that begins at train.py:41"),
        ("forward_backward", "the forward and backward passes of the step that begins"),
        ("forward", "the forward pass of the step that begins at train.py:41"),
    ],
)
def test_instructions_name_the_flags_and_the_scope(scope: str, what: str) -> None:
    flags, capture = verdict(profile(replay=replayed(scope=scope))).instructions
    assert flags == "Change the optimizer as the measured capture did: AdamW capturable=True."
    assert capture.startswith(f"Capture {what}")
    assert capture.endswith("(launchscope docs get-started).")


def test_at_most_five_instructions_are_given_and_the_last_fix_names_the_other_rules() -> None:
    of = predicted(
        shapes=shapes("(8,) float32", "(8,) float32", "(9,) float32"),
        blockers=(item_blocker(),),
        replay=Replay("blocked", reason=Reason("no_stub", {"op": "cudaStreamSynchronize"})),
        facts={"scheduler_live": True, "legacy_stream_kernels": 3},
    )
    first, second, rest, flags, again = verdict(of).instructions
    assert (first, second) == (
        "Fix train.py:52 (launchscope rules LS030).",
        "Launch the kernels of the legacy default stream on PyTorch's current stream "
        "(launchscope rules LS030).",
    )
    assert rest.startswith("Fix the findings of LS011, LS010 and LS035")
    assert "AdamW capturable=True" in flags
    assert (
        again == "Profile again, then capture one graph per shape (launchscope docs get-started)."
    )


def test_a_capture_that_no_rule_explains_is_to_be_fixed_at_its_line() -> None:
    given = verdict(
        predicted(
            replay=Replay(
                "blocked",
                reason=Reason("no_stub", {"op": "cudaStreamSynchronize"}),
                where=SourceLine("train.py", 9),
            )
        )
    )
    assert given.recommendation == "adopt_after_fixes"
    assert given.instructions[0].startswith("Remove what prevents the capture at train.py:9")


def test_a_line_to_fix_in_a_library_is_named_with_the_line_that_leads_there() -> None:
    first = verdict(predicted(blockers=(library_blocker(),))).instructions[0]
    assert first.startswith("Fix toymodels/encoder.py:23 (called at train.py:52) (launchscope")
