"""What a gate compares of several ranks."""

from __future__ import annotations

from msgspec.structs import replace

from launchscope.gate.ranks import rank_to_show, worst_of
from launchscope.model import Cause, Correctness, Metric, Profile, Replay
from tests.gate.profiles import gpu


def of(**values: float) -> Profile:
    return gpu({key: Metric(value, "ms") for key, value in values.items()})


def test_each_metric_is_that_of_the_rank_on_which_it_is_worst() -> None:
    ranks = {
        0: of(iteration_ms=10, exposed_communication_ms=6, launch_overhead_ms=1, speedup=2),
        1: of(iteration_ms=10, exposed_communication_ms=2, launch_overhead_ms=4, speedup=3),
    }
    worst = worst_of(ranks)
    assert worst.value("launch_overhead_ms") == 4
    assert worst.value("speedup") == 2  # more is better


def test_the_rank_that_is_shown_is_the_one_whose_replay_went_wrong() -> None:
    cause = Cause("scalar", None, 1.0, 2.0, op="aten.mul")
    verified = Correctness("verified", 4, 0.0)
    spoiled, unchecked = Correctness("different", 4, 0.1), Correctness()
    causing = Correctness("different", 4, 0.1, causes=(cause,))

    def shown(*found: Correctness) -> int:
        replays = [Replay("measured", correct=correct) for correct in found]
        return rank_to_show({n: replace(of(), replay=each) for n, each in enumerate(replays)})

    assert shown(verified, verified) == 0
    assert shown(spoiled, causing, spoiled) == 1
    assert shown(verified, unchecked, spoiled) == 2
    assert shown(verified, unchecked) == 1
    waits, late = of(iteration_ms=10, exposed_communication_ms=8), of(iteration_ms=10)
    assert rank_to_show({0: waits, 1: late, 2: late}) == 1
    unmeasured = {n: replace(of(), replay=Replay("skipped")) for n in (1, 2)}
    assert rank_to_show(unmeasured) == 1
