from __future__ import annotations

from tests.rules.cases import Case, shapes
from tests.rules.profiles import profile

PADDING = profile(shapes=shapes("(8, 97) float32", "(8, 101) float32", steps=2))
CASES = (
    Case(
        "run different ops: control flow",
        profile(shapes=shapes("(8, 97) float32", "(8, 97) float32", steps=2)),
        PADDING,
    ),
    Case(
        "call the model 1 and 7 times",
        profile(shapes=shapes("(8,) float32", "(8,) float32", forwards=(1, 7))),
        PADDING,
    ),
)
SAME = ("loss",)
