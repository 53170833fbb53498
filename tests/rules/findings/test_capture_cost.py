from __future__ import annotations

from launchscope.rules.findings.capture_cost import RULE
from tests.rules.cases import Case, replayed, titled
from tests.rules.profiles import gpu_bound, profile

LATE = {"break_even_steps": 900.0}
CASES = (
    Case(
        "after 900 steps, and you expect 500",
        profile(metrics=LATE, expected_steps=500),
        profile(metrics=LATE),
    ),
    Case("needed AdamW capturable=True", profile(), profile(replay=replayed(changes=()))),
    Case("holds 8.60 GiB", profile(metrics={"graph_memory_mib": 8806.0}), profile()),
)


def test_flags_are_not_asked_for_where_a_graph_does_not_pay() -> None:
    assert not titled(RULE, gpu_bound(), "needed")
    assert not titled(RULE, profile(metrics=LATE, expected_steps=500), "needed")
