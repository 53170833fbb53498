from __future__ import annotations

import pytest

from launchscope.rules import advise
from launchscope.rules.findings.synchronization import RULE
from tests.rules.cases import Case
from tests.rules.profiles import item_blocker, library_blocker, profile, share

CASES = (
    Case("costs 2.00 ms per iteration (21 %)", profile(metrics={"sync_wait_ms": 2.0}), profile()),
    Case(
        "costs 6.00 ms",
        profile(
            metrics={
                "removable_pct": share(2.0, 1.0, 3.0),
                "sync_wait_ms": 6.0,
                "syncs_per_step": 1,
            },
            blockers=(item_blocker(), library_blocker()),
        ),
        profile(),
    ),
)
SAME = ("total",)


@pytest.mark.parametrize("inside", [0, 1])
def test_a_read_inside_the_step_also_stops_a_capture(inside: int) -> None:
    of = profile(metrics={"sync_wait_ms": 2.0, "syncs_per_step": inside})
    (finding,) = RULE.check(of)
    assert ("also stops a capture" in finding.advice) is bool(inside)


@pytest.mark.parametrize(("code", "wait"), [("LS020", "data_wait_ms"), ("LS021", "sync_wait_ms")])
@pytest.mark.parametrize("removable", [2.0, 20.0], ids=["first", "pays all the same"])
def test_a_wait_is_to_be_fixed_first_if_the_verdict_says_so(
    code: str, wait: str, removable: float
) -> None:
    gain = share(removable, removable - 1, removable + 1)
    of = advise(profile(metrics={"removable_pct": gain, wait: 6.0}))
    assert of.verdict is not None
    advice = next(finding.advice for finding in of.findings if finding.code == code)
    first = removable < 15
    assert advice.startswith("Fix this before you adopt a graph") is first
    assert of.verdict.headline.startswith("Fix the ") is first
