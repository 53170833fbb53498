from __future__ import annotations

from launchscope.model import Reason, Replay, ShapeReplay, StepKind
from launchscope.rules.findings.shapes import RULE
from tests.rules.cases import Case, replayed, shapes, with_step
from tests.rules.profiles import predicted, profile
from tests.shapes import tensors

TWO = shapes("(8, 97) float32", "(8, 101) float32", steps=2)
NEW = shapes("(8, 97) int64", "(8, 31) int64")
GROWING = shapes("(1, 61, 4) float32", "(1, 62, 4) float32", "(1, 63, 4) float32")
KINDS = (
    StepKind("prefill", tensors("(1, 512) int64")[0], 1.0),
    StepKind("decode", tensors("(1, 1) int64")[0], 99.0),
)
STABLE = profile()


def padded_to(*sizes: int) -> Replay:
    found = (ShapeReplay(tensors(f"(8, {size}) int64"), 40.0, 9.0, 3.0) for size in sizes)
    ended = Reason("ops_change", {"variants": 2, "steps": 2})
    return Replay("skipped", ended, padded=tuple(found), padding_pct=12.0)


FREQUENT = replayed(shapes=(ShapeReplay(tensors("(8, 97) float32"), 40.0, 9.0, 3.0),))
CASES = (
    Case("2 different ones in 3", predicted(shapes=TWO), STABLE),
    Case("different in each of the 2", predicted(shapes=NEW), STABLE),
    Case("grows by one from step to step", predicted(shapes=GROWING), predicted(shapes=TWO)),
    Case(
        "A graph for inputs of (8, 97) float32, which 40 % of the steps have, takes 3.00 ms "
        "instead of 9.00 ms",
        profile(shapes=TWO, replay=FREQUENT),
        STABLE,
    ),
    Case(
        "Padded to (8, 120) int64, 40 % of the steps take 3.00 ms in a graph; eager they take "
        "9.00 ms on average",
        profile(shapes=NEW, replay=padded_to(120)),
        STABLE,
    ),
    Case("Padded to (8, 100)", profile(shapes=NEW, replay=padded_to(100, 120)), STABLE),
    Case("decode (99 %) and prefill (1.0 %)", with_step(STABLE, kinds=KINDS), STABLE),
)


def test_the_change_of_shapes_is_said_before_what_each_shape_gains() -> None:
    found = RULE.check(profile(shapes=TWO, replay=FREQUENT))
    assert [finding.severity for finding in found] == ["advice", "info"]
