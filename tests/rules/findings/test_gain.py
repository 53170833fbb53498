from __future__ import annotations

from launchscope.rules.findings.gain import RULE
from tests.rules.cases import Case, replayed, titled
from tests.rules.profiles import SUBTRACTED, predicted, profile, share

UNSURE = {"removable_pct": share(20.0, -3.0, 43.0)}
CASES = (
    Case("shortens the iteration by 62 %", profile(), profile(metrics={"removable_pct": None})),
    Case("predicted to shorten the iteration by 62 %", predicted(), profile()),
    Case(
        "makes the iteration 8.0 %",
        profile(metrics={"removable_pct": share(-8, -9, -7)}),
        profile(),
    ),
    Case(
        "within the spread",
        profile(metrics=UNSURE | {"removable_pct": share(2, -3, 43)}),
        profile(),
    ),
    Case("between -3.0 % and 43 %", profile(metrics=UNSURE), profile()),
)


def test_a_loss_is_never_a_negative_gain() -> None:
    loss = profile(metrics={"removable_pct": share(-3, -9, 4)})
    assert titled(RULE, loss, "makes the iteration 3.0 % longer;")
    assert titled(RULE, loss, "within the spread of the timings")
    what_if = profile(
        metrics={"removable_pct": share(-8, -9, -7)}, replay=replayed(status="what_if")
    )
    (finding,) = RULE.check(what_if)
    assert finding.title.startswith(
        "A replay makes the iteration 8.0 % longer once the blocking lines are fixed;"
    )
    none = profile(metrics={"removable_pct": share(-0.03, -1, 1)})
    assert titled(RULE, none, "does not shorten the iteration")


def test_more_steps_are_asked_for_than_were_timed() -> None:
    of = profile(metrics=UNSURE, facts={"timing_steps": 120})
    (finding,) = titled(RULE, of, "between")
    assert "--timing" not in finding.advice
    subtracted = profile(
        metrics={**UNSURE, "replayed_iteration_ms": SUBTRACTED}, facts={"timing_steps": 120}
    )
    (finding,) = titled(RULE, subtracted, "between")
    assert "--timing 480 --replay 480" in finding.advice
