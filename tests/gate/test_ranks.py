"""What a gate compares of several ranks."""

from __future__ import annotations

from dataclasses import replace

from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.gate.ranks import worst_of
from launchscope.model import Metric, Profile
from tests.gate.profiles import gpu


def of(**values: float) -> Profile:
    return gpu({key: Metric(value, "ms") for key, value in values.items()})


def test_each_metric_is_that_of_the_rank_on_which_it_is_worst() -> None:
    ranks = {
        0: of(iteration_ms=10, exposed_communication_ms=6, launch_overhead_ms=1, speedup=2),
        1: of(iteration_ms=10, exposed_communication_ms=2, launch_overhead_ms=4, speedup=3),
    }
    rows = [replace(rank_row(p, f"rank {n}"), rank=n) for n, p in ranks.items()]
    worst = worst_of(ranks, ranks_of(rows, is_one_run=True))
    assert worst.value("launch_overhead_ms") == 4
    assert worst.value("speedup") == 2  # more is better
    assert worst.value("rank_own_ms") == 8
    assert worst.value("rank_spread_pct") == 100 * (8 - 4) / 6
    assert worst.value("rank_overhead_spread_ms") == 3


def test_what_no_rank_was_timed_for_is_not_known() -> None:
    untimed = of()
    untimed = replace(untimed, metrics={"device_ops_per_step": Metric(22, "1")})
    rows = [replace(rank_row(untimed, f"rank {n}"), rank=n) for n in (0, 1)]
    worst = worst_of({0: untimed, 1: untimed}, ranks_of(rows, is_one_run=True))
    assert worst.value("rank_spread_pct") is None
