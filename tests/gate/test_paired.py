"""Limits decided from pairs of runs: what fails, what is not decided, what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from launchscope.gate.limits import limits_from_flags
from launchscope.gate.paired import CONFIDENCE_PCT, check_pairs, default_timed_limit, disturbance
from launchscope.model import CheckResult, Metric, PairedRuns, Profile
from launchscope.report import RenderOptions, render
from launchscope.report.documents.check import paired_text
from tests.gate.profiles import elsewhere, gpu, limit, rehearsal

RUNS = PairedRuns("main", "8f4ce093af07" + "0" * 28, 10, 10, 1, CONFIDENCE_PCT)
QUIET = (0.0, 0.4, -0.3, 0.1, 0.6, -0.5, 0.2, -0.1, 0.3, -0.2)  # percent


def timed(iteration_ms: float, **facts: object) -> Profile:
    made = gpu({"iteration_ms": Metric(iteration_ms, "ms")})
    return replace(made, facts=replace(made.facts, **facts))  # type: ignore[arg-type]


def slower_by(percent: float, noise: Sequence[float] = QUIET) -> list[tuple[Profile, Profile]]:
    return [(timed(10.0), timed(10.0 * (1 + (percent + own) / 100))) for own in noise]


def checked(
    pairs: Sequence[tuple[Profile, Profile]], *limits: str, strict: bool = False
) -> CheckResult:
    own = [one for one in limits_from_flags(limits).values() if one is not None]
    chosen = own or [default_timed_limit(5.0)]
    return check_pairs(pairs, RUNS, chosen, workload="train", strict=strict)


@pytest.mark.parametrize(
    ("percent", "noise", "outcome"),
    [
        (0.0, QUIET, "passed"),
        (4.0, QUIET, "passed"),
        (-30.0, QUIET, "passed"),
        (5.0, QUIET, "inconclusive"),
        (10.0, QUIET, "failed"),
        (10.0, [30 * own for own in QUIET], "inconclusive"),
        (0.0, [30 * own for own in QUIET], "inconclusive"),
        (10.0, QUIET[:8], "failed"),
        (10.0, QUIET[:7], "inconclusive"),  # too few for 99 %
    ],
)
def test_a_time_fails_only_if_its_whole_interval_is_beyond_the_tolerance(
    percent: float, noise: Sequence[float], outcome: str
) -> None:
    pairs = slower_by(percent, noise)
    assert checked(pairs).outcome == outcome
    assert checked(pairs, strict=True).outcome == (
        "failed" if outcome == "inconclusive" else outcome
    )


def test_a_failure_names_the_change_and_its_interval() -> None:
    result = checked(slower_by(10))
    assert result.headline == (
        "iteration_ms changed by +10 % (between +9.7 % and +10.4 %); the limit is +5%."
    )
    assert result.baseline == "main (8f4ce093af07)"
    too_few = limit(checked(slower_by(10, QUIET[:3])), "iteration_ms")
    assert too_few.reason == "3 pairs cannot decide it: it takes 8"


def test_a_limit_of_ones_own_has_its_own_tolerance_and_unit() -> None:
    assert checked(slower_by(10), "iteration_ms=+15%").outcome == "passed"
    assert checked(slower_by(10), "iteration_ms=+2ms").outcome == "passed"
    assert checked(slower_by(10), "iteration_ms=+500us").outcome == "failed"
    pairs = [(gpu({"speedup": 3.0}), gpu({"speedup": 2.7 + own / 100})) for own in QUIET]
    assert checked(pairs, "speedup=-5%").outcome == "failed"
    assert checked([(new, old) for old, new in pairs], "speedup=-5%").outcome == "passed"
    points = [
        (gpu({"launch_overhead_pct": 40.0}), gpu({"launch_overhead_pct": 44.0 + own / 10}))
        for own in QUIET
    ]
    assert checked(points, "launch_overhead_pct=+2pp").outcome == "failed"
    assert checked(points, "launch_overhead_pct=+5pp").outcome == "passed"
    assert checked(points, "launch_overhead_pct=50%").outcome == "passed"  # of the current one
    zero = [(gpu({"sync_wait_ms": 0.0}), gpu({"sync_wait_ms": 0.5 + own})) for own in QUIET]
    assert checked(zero, "sync_wait_ms=+5%").outcome == "failed"  # there is no share of 0


def test_counts_are_compared_exactly_over_all_runs() -> None:
    more = [(gpu(), gpu({"launches_per_step": 556}))]
    assert checked(more, "launches_per_step=+0").outcome == "failed"
    sometimes = [*more, (gpu(), gpu())]
    assert checked(sometimes, "launches_per_step=+0").outcome != "failed"
    better = checked([(new, old) for old, new in more], "launches_per_step=+0")
    assert (better.outcome, better.stale) == ("passed", False)
    assert checked([(rehearsal(), rehearsal())], "device_ops_per_step=+0").outcome == "passed"


def test_versions_that_cannot_be_compared_are_not() -> None:
    pairs = [(elsewhere(timed(10), device="NVIDIA A100"), timed(20))] * 10
    assert checked(pairs).outcome == "not_compared"


def test_every_metric_is_shown_with_its_interval_in_every_format() -> None:
    noisy = [
        (old, replace(new, metrics={**new.metrics, "launches_per_step": Metric(556, "1", True)}))
        for old, new in slower_by(10)
    ]
    result = checked(noisy)
    assert result.paired is not None
    texts = {found.metric: paired_text(found) for found in result.paired.changes}
    assert texts["iteration_ms"] == "+10 % (+9.7 % to +10.4 %)"
    assert texts["launches_per_step"] == "+1 (exact)"
    assert texts["syncs_per_step"] == "0 (exact)"
    measured = {name for name, metric in gpu().metrics.items() if metric.value is not None}
    assert set(texts) == measured | {"blockers"}
    for name in ("terminal", "markdown", "html", "json", "junit", "csv"):
        shown = render(result, name, RenderOptions(width=120))
        text = (shown if isinstance(shown, str) else shown.decode()).replace("\xa0", " ")
        assert all(metric in text for metric in measured), name
        assert name == "json" or "+9.7 % to +10.4 %" in text


@pytest.mark.parametrize(
    ("base", "current", "found"),
    [
        ({}, {}, None),
        ({"sm_clock_mhz": 1980.0}, {"sm_clock_mhz": 1965.0}, None),
        ({"sm_clock_mhz": 1980.0}, {"sm_clock_mhz": 1800.0}, "other_clock"),
        ({"sm_clock_mhz": 1980.0}, {}, None),
        ({"throttled": ()}, {"throttled": ("hw_thermal_slowdown",)}, "throttled"),
    ],
)
def test_a_pair_is_disturbed_by_heat_and_by_other_clocks(
    base: dict[str, object], current: dict[str, object], found: str | None
) -> None:
    assert disturbance(timed(1, **base), timed(1, **current)) == found


def test_dropped_pairs_and_missing_ones_are_counted() -> None:
    disturbed = ("throttled", "throttled", "other_clock")
    runs = replace(RUNS, pairs=9, disturbed=disturbed)  # type: ignore[arg-type]
    result = check_pairs(slower_by(0)[:9], runs, [default_timed_limit(5)], workload="train")
    text = " ".join(str(render(result, "markdown")).split())
    assert "2 pairs of runs were dropped: the GPU was slowed down (heat, power)" in text
    assert "1 pair of runs was dropped: the clock of the GPU was not the same in both" in text
    assert "Only 9 of 10 pairs could be compared." in text
