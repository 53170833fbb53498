"""The steps that a verdict gives: their order, what they name, and how many there are."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from launchscope.model import (
    Reason,
    Replay,
    SourceLine,
)
from tests.rules.cases import replayed, shapes, verdict
from tests.rules.profiles import item_blocker, library_blocker, predicted, profile


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("full_step", "capture the step that begins at train.py:41 as docs/"),
        ("forward_backward", "capture the forward and backward passes of the step that begins"),
        ("forward", "capture the forward pass of the step that begins at train.py:41"),
    ],
)
def test_instructions_name_the_scope_the_flags_and_the_inputs(scope: str, said: str) -> None:
    flags, inputs, capture, loop = verdict(profile(replay=replayed(scope=scope))).instructions
    assert flags == "Change the optimizer as the measured capture did: AdamW capturable=True."
    assert "the 2 input tensors of the step (128 KiB) once" in inputs
    assert said in capture
    assert ("run the rest of the step eagerly" in loop) is (scope != "full_step")


def test_instructions_name_the_warm_up_that_ddp_needs() -> None:
    base = profile()
    given = verdict(replace(base, environment=dataclasses.replace(base.environment, world_size=2)))
    assert "Construct the DDP model in a side stream's context" in given.instructions[-2]
    assert "at least 11 steps eagerly" in given.instructions[-2]


def test_inference_is_not_instructed_to_read_a_loss() -> None:
    step = profile().step
    assert step is not None
    given = verdict(profile(step=dataclasses.replace(step, scope="forward")))
    assert "copy any output that you keep" in given.instructions[-1]
    assert "loss" not in "".join(given.instructions)


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
    assert again == "Profile again, then capture one graph per shape (docs/get-started.md)."


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
