from __future__ import annotations

from msgspec.structs import replace

from launchscope.model import Correctness, Metric, Profile, Reason
from launchscope.rules.findings.measurement_quality import RULE
from tests.rules.cases import Case, replayed, titled
from tests.rules.profiles import SUBTRACTED, predicted, profile

UNCHECKED = Correctness("not_checked", reason=Reason("few_compared", {"compared": 2, "wanted": 4}))
BUSY: dict[str, float | Metric | None] = {"iteration_busy_ms": 12.0}


def varying(*times: float) -> Profile:
    base = profile(metrics={"launch_overhead_pct": None})
    return replace(base, metrics=base.metrics | {"iteration_ms": Metric.of_samples(times, "ms")})


CASES = (
    Case("Only 4 steps", profile(facts={"timing_steps": 4}), profile()),
    Case("A pass gave no result", profile(facts={"has_pass_failures": True}), profile()),
    Case("28 % longer", profile(metrics=BUSY), profile()),
    Case("28 % longer", predicted(metrics=BUSY), predicted()),
    Case("differ by 11 %", profile(facts={"iteration_check_pct": 11.0}), profile()),
    Case("joins only 40 %", profile(facts={"join_coverage_pct": 40.0}), profile()),
    Case("very widely", varying(8.0, 8.5, 9.0, 12.0, 14.0, 14.5), profile()),
    Case("not checked: only 2 of 4", profile(replay=replayed(correct=UNCHECKED)), profile()),
)


def test_times_that_contradict_each_other_are_a_warning_unless_a_replay_was_measured() -> None:
    (found,) = titled(RULE, predicted(metrics=BUSY), "longer")
    assert found.severity == "warning"
    (found,) = titled(RULE, profile(metrics=BUSY), "longer")
    assert found.severity == "info"
    assert found.advice == "The verdict does not rest on the times of the trace."


def test_more_steps_narrow_the_spread_only_where_steps_are_timed_apart() -> None:
    wide = varying(8.0, 8.5, 9.0, 12.0, 14.0, 14.5)
    (found,) = titled(RULE, wide, "widely")
    assert "--timing" not in found.advice
    apart = replace(wide, metrics=wide.metrics | {"replayed_iteration_ms": SUBTRACTED})
    (found,) = titled(RULE, apart, "widely")
    assert "--timing 120" in found.advice
