from __future__ import annotations

from tests.rules.cases import Case
from tests.rules.profiles import profile

CASES = (
    Case(
        "nothing but collectives for 4.00 ms per iteration (43 %)",
        profile(metrics={"exposed_communication_ms": 4.0}),
        profile(metrics={"exposed_communication_ms": 0.1}),
    ),
)
SAME = ("out",)
