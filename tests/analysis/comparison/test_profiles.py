"""The difference of two Profiles, and ranks side by side."""

from __future__ import annotations

import pytest

from launchscope.analysis import profile_of_trace
from launchscope.analysis.comparison.profiles import difference
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.model import Profile
from launchscope.model.comparison import RankRow
from launchscope.rules import advise
from tests.builders import TraceBuilder, loop_trace


def profile(kernels: dict[str, float], steps: int = 5, work_us: float = 30) -> Profile:
    def step(builder: TraceBuilder) -> None:
        for name, us in kernels.items():
            builder.work(work_us).launch(kernel_us=us, name=name)

    return advise(profile_of_trace(loop_trace(steps, step).trace(), "t.json"))


def test_nothing_differs_in_a_profile_and_itself() -> None:
    one = profile({"a": 3, "b": 5})
    found = difference(one, one)
    assert found.kernels == ()
    assert found.same_kernels == 2
    assert {change.change_pct for change in found.metrics} <= {0.0, None}


def test_kernels_appear_vanish_and_change_and_the_largest_comes_first() -> None:
    found = difference(
        profile({"same": 3, "gone": 5, "slower": 10}), profile({"same": 3, "new": 7, "slower": 30})
    )
    assert [(kernel.name, kernel.state) for kernel in found.kernels] == [
        ("slower", "changed"),
        ("new", "appeared"),
        ("gone", "vanished"),
    ]
    assert found.kernels[0].change_us == pytest.approx(20)
    assert found.same_kernels == 1


def test_metrics_change_by_a_share_of_the_first() -> None:
    found = difference(profile({"a": 10}), profile({"a": 10, "b": 10}))
    changes = {change.key: change for change in found.metrics}
    assert changes["launches_per_step"].change_pct == 100.0
    assert changes["launches_per_step"].beyond_spread is True
    assert "replay_ms" not in changes


def test_a_note_says_that_a_whole_span_is_compared_with_a_step() -> None:
    one = profile({"a": 3})
    trace = loop_trace(5, lambda builder: builder.launch()).trace()
    whole = profile_of_trace(trace, "whole.json", step_from="none")
    assert any("whole span" in note for note in difference(one, whole).notes)


# ------------------------------------------------------------------------------ ranks


def row(rank: int, own: float, communication: float) -> RankRow:
    return RankRow(f"rank{rank}.json", rank, own + communication, own, communication, own)


def test_the_slowest_rank_is_the_one_the_others_wait_for() -> None:
    # All iterations last 10 ms: who is late spends the least time in the collective.
    found = ranks_of([row(2, 5, 5), row(0, 4, 6), row(1, 9, 1)])
    assert [r.rank for r in found.rows] == [0, 1, 2]
    assert found.slowest == "rank1.json"
    assert "slowest is rank 1" in found.headline
    assert "5.00 ms more than the fastest (100 % of the median)" in found.headline
    skew = next(skew for skew in found.skews if skew.key == "own_ms")
    assert (skew.low, skew.middle, skew.high, skew.pct) == (4, 5, 9, 100.0)


def test_the_headline_says_that_ranks_are_alike() -> None:
    assert "differ by only" in ranks_of([row(0, 5, 1), row(1, 5.01, 1)]).headline


def test_time_in_collectives_is_not_time_of_the_ranks_own() -> None:
    found = rank_row(profile({"gemm": 10, "ncclDevKernel_AllReduce_Sum_f32": 40}), "r0")
    assert found.communication_ms == pytest.approx(0.04)
    assert found.iteration_ms is not None
    assert found.own_ms == pytest.approx(found.iteration_ms - 0.04)


def test_a_file_that_could_not_be_read_is_a_row_and_a_note() -> None:
    found = ranks_of([row(0, 5, 1), RankRow("broken.json", problem="is damaged")])
    assert found.notes == ("broken.json: is damaged",)
    assert "1 of 2 ranks" in found.headline


def recorded(name: str, target: str, rank: int | None = None) -> RankRow:
    return RankRow(name, rank, 5.0, own_ms=5.0, recommendation="adopt", target=target)


@pytest.mark.parametrize(
    "rows",
    [
        [recorded("b", "train.py"), recorded("a", "serve.py")],
        [recorded("b", "train.py", 0), recorded("a", "serve.py", 1)],
        [recorded("b", "train.py", 0), recorded("a", "train.py", 0)],
        [RankRow("b.json", recommendation="adopt"), RankRow("a.json", recommendation="adopt")],
    ],
    ids=["commands", "ranks of different commands", "one rank twice", "no rank"],
)
def test_files_that_are_not_ranks_of_one_run_are_workloads(rows: list[RankRow]) -> None:
    found = ranks_of(rows)
    assert found.kind == "workloads"
    assert found.headline == "2 workloads: 2 adopt."
    assert [row.name[0] for row in found.rows] == ["a", "b"]
    assert found.slowest is None
    assert found.skews == ()
    assert ranks_of(rows, is_one_run=True).kind == "ranks"
