"""Headline, verdict and instructions name every obstacle together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import Reason, Replay, Shapes, ShapeSignature, SourceLine
from launchscope.rules import advise
from tests.rules.cases import shapes, verdict, with_step
from tests.rules.profiles import item_blocker, predicted, rehearsal
from tests.shapes import tensors

BRANCH = shapes("(8,) float32", "(8,) float32")
NEW_EACH_STEP = shapes(*(f"(4, {length}) int64" for length in (83, 86, 59)))
CACHE = shapes(*("(1, 1) int64" + f", (1, 8, {length}, 32) float32" * 2 for length in (61, 62, 63)))
LEGACY = Replay("skipped", Reason("legacy_stream"))


EVERY_CHANGE = pytest.mark.parametrize(
    ("change", "clause", "code"),
    [
        (BRANCH, "the data-dependent branch is replaced", "LS011"),
        (NEW_EACH_STEP, "the inputs are padded to a few sizes", "LS010"),
        (CACHE, "the inputs that grow by one in every step keep one size", "LS010"),
    ],
    ids=["branch", "padding", "growth"],
)


@EVERY_CHANGE
def test_blockers_and_what_changes_are_named_together(
    change: Shapes, clause: str, code: str
) -> None:
    given = verdict(
        predicted(
            shapes=change,
            blockers=(item_blocker(),),
            replay=Replay("blocked", Reason("no_stub", {"op": "cudaStreamSynchronize"})),
        )
    )
    assert given.recommendation == "adopt_after_fixes"
    assert f"once train.py:52 is fixed and {clause}" in given.headline
    assert given.because == ("LS001", "LS030", code)
    fix, other, *_ = given.instructions
    assert fix == "Fix train.py:52 (launchscope rules LS030)."
    assert f"(launchscope rules {code})" in other


def test_inputs_that_grow_need_a_static_cache() -> None:
    given = verdict(predicted(shapes=CACHE))
    assert (given.recommendation, given.basis) == ("adopt_after_fixes", "predicted")
    assert "static cache" in given.headline
    assert "shapes seen" not in given.headline
    assert given.removable_pct == 62.5
    assert "(1, 8, 61, 32) -> (1, 8, 62, 32)" in given.instructions[0]
    assert "one graph per shape" not in given.instructions[-1]


def test_shapes_that_are_new_in_every_step_are_not_counted() -> None:
    given = verdict(predicted(shapes=NEW_EACH_STEP))
    assert (given.recommendation, given.confidence) == ("adopt_bucketed", "low")
    assert given.headline.startswith(
        "Adopt one CUDA graph per input shape and pad other inputs to a few shapes:"
    )
    assert "3" not in given.headline.split(".")[0]


def test_too_many_shapes_beside_a_blocker_name_both() -> None:
    many = Shapes(False, tuple(ShapeSignature(2, tensors(f"(8, {n}) int64")) for n in range(20)))
    given = verdict(predicted(shapes=many, blockers=(item_blocker(),)))
    assert given.recommendation == "stay_eager"
    assert "until train.py:52 is fixed and the inputs are padded" in given.headline


def test_a_step_on_the_legacy_default_stream_is_not_adopted_before_a_fix() -> None:
    given = verdict(predicted(replay=LEGACY, facts={"side_stream": False}))
    assert (given.recommendation, given.basis) == ("adopt_after_fixes", "predicted")
    assert "no kernel runs on the legacy default stream" in given.headline
    assert given.because == ("LS001", "LS030")
    assert "LS030" in given.instructions[0]


@EVERY_CHANGE
def test_a_rehearsal_names_blockers_and_what_changes_and_decides_nothing(
    change: Shapes, clause: str, code: str
) -> None:
    given = verdict(rehearsal(shapes=change, blockers=(item_blocker(),)))
    assert given.recommendation == "inconclusive"
    assert f"train.py:52 is fixed and {clause}" in given.headline
    assert f"(launchscope rules {code})" in given.instructions[1]


def test_a_step_that_begins_with_its_backward_is_to_be_marked_first() -> None:
    given = verdict(with_step(predicted(), period=("backward",), names=("",)))
    assert given.recommendation == "adopt_after_fixes"
    assert "the marked step includes its forward" in given.headline
    assert "launchscope.step()" in given.instructions[0]


def test_the_step_of_lbfgs_is_not_to_be_fixed_and_left_eager_at_once() -> None:
    own = replace(
        item_blocker(),
        op="aten._local_scalar_dense",
        inside="lbfgs",
        where=SourceLine("train.py", 9),
    )
    base = predicted(
        shapes=BRANCH,
        facts={"optimizer_classes": ("LBFGS",)},
        blockers=(own,),
        replay=Replay("blocked", Reason("no_stub", {"op": "cudaStreamSynchronize"})),
    )
    alone, beside = verdict(base), verdict(replace(base, blockers=(own, item_blocker())))
    assert "train.py:9" not in " ".join((alone.headline, *alone.instructions))
    assert "the step of LBFGS stays eager" in alone.headline
    assert "once train.py:52 is fixed and the step of LBFGS stays eager" in beside.headline


def test_lbfgs_stays_eager_and_gets_no_advice_about_branches() -> None:
    of = advise(predicted(shapes=BRANCH, facts={"optimizer_classes": ("LBFGS",)}))
    assert of.verdict is not None
    assert "the step of LBFGS stays eager" in of.verdict.headline
    assert "torch.where" not in " ".join(of.verdict.instructions)
    (finding,) = (found for found in of.findings if found.code == "LS011")
    assert "inside the closure" in finding.advice
