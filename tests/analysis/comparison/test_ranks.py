"""Ranks side by side: own time, collectives, who is late, and files that are no ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from launchscope.analysis import profile_of_trace
from launchscope.analysis.comparison.collectives import Collectives, arrivals, collectives_of
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.analysis.timeline.communication import is_collective
from launchscope.model import Profile
from launchscope.model.comparison import RankRow, Ranks
from launchscope.report import render
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, find_input
from launchscope.workflows.progress import Progress
from tests.builders import TraceBuilder, loop_trace, trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NCCL_STREAM = 20


def profile(step: Callable[[TraceBuilder], object]) -> Profile:
    return advise(profile_of_trace(loop_trace(5, step).trace(), "t.json"))


def row(rank: int, own: float, communication: float) -> RankRow:
    return RankRow(
        f"rank{rank}.json", rank, own + communication, own, communication, communication, own
    )


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


def test_only_exposed_time_in_collectives_is_not_time_of_the_ranks_own() -> None:
    def step(builder: TraceBuilder) -> None:
        builder.launch(kernel_us=100, name="gemm")
        begin = builder.host
        builder.launch(kernel_us=400, name=ALL_REDUCE, stream=NCCL_STREAM)
        builder.launch(kernel_us=60, name="gemm")  # runs behind the first, beside the all-reduce
        builder.work(begin + 405 - builder.host).launch(kernel_us=10, name="gemm").work(200)

    made = profile(step)
    assert "of them, exposed" in str(render(made, "markdown"))
    found = rank_row(made, "r0")
    assert found.iteration_ms is not None
    assert found.communication_ms == pytest.approx(0.4)
    assert found.exposed_communication_ms is not None
    assert 0.23 < found.exposed_communication_ms < 0.25
    assert found.own_ms == pytest.approx(found.iteration_ms - found.exposed_communication_ms)


def test_a_rank_whose_communication_was_not_measured_has_no_time_of_its_own() -> None:
    whole = profile(lambda builder: builder.launch())
    metrics = {k: v for k, v in whole.metrics.items() if k != "exposed_communication_ms"}
    assert rank_row(replace(whole, metrics=metrics), "r0").own_ms is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (ALL_REDUCE, True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)", True),
        ("void c10d::symmetric_memory::two_shot_all_reduce_kernel<float, 16, 8>(...)", True),
        ("void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)", True),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8, true>(...)", True),
        ("oneccl_allreduce_ring_bf16", True),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(...)", False),
        ("void splitKreduce_kernel<32, 16, int, float>(...)", False),
        ("triton_red_fused_all_reduce_kernel_3", False),
    ],
)
def test_collectives_of_every_library_are_recognized(name: str, expected: bool) -> None:
    read = trace().launch(name=name).memcpy(name="Memcpy PtoP (nccl)").trace()
    assert list(is_collective(read.activities)) == [expected, False]


# --------------------------------------------------------------------------- arrivals


def rank_trace(
    rank: int, *, skew_us: float = 0, drift: float = 0, skipped: int = 0, seed: int = 0,
    late_us: float = 300,
) -> TraceBuilder:  # fmt: skip
    """One of two ranks that reduce their gradients once per step. Steps vary at random; rank 1 is
    `late_us` late, except at the fourth step, where rank 0 is. The clock is off by `skew_us`, and
    runs away by `drift`. The first `skipped` steps were not recorded."""
    chance = random.Random(seed)
    built = trace(1_000_000)
    real = 0.0
    for step in range(40):
        work = 500 + 400 * chance.random()
        arrives = [real + work, real + work + late_us]
        if step == 3:
            arrives.reverse()
        ends = max(arrives) + 50
        if step >= skipped:
            built.host = 1_000_000 + skew_us + real * (1 + drift)
            built.step().launch(kernel_us=work - 20, name="gemm")
            built.host = 1_000_000 + skew_us + arrives[rank] * (1 + drift) - 5
            built.launch(kernel_us=ends - arrives[rank], name=ALL_REDUCE, stream=NCCL_STREAM)
            built.end()
        real = ends + 10
    return built


def both(*built: TraceBuilder) -> Ranks:
    names = [f"rank{rank}.json" for rank in range(len(built))]
    read = {name: each.trace() for name, each in zip(names, built)}
    rows = [
        replace(rank_row(advise(profile_of_trace(each, name)), name), rank=rank)
        for rank, (name, each) in enumerate(read.items())
    ]
    return ranks_of(rows, {name: collectives_of(each) for name, each in read.items()})


@pytest.mark.parametrize(
    ("skew_us", "drift"), [(0, 0), (7_000_000, 0), (-900_000, 2e-5)], ids=["same", "off", "drifts"]
)
def test_the_last_to_arrive_is_named_whatever_the_clocks(skew_us: float, drift: float) -> None:
    found = both(rank_trace(0), rank_trace(1, skew_us=skew_us, drift=drift))
    assert [arrival.last for arrival in found.arrivals] == [
        f"rank{int(step != 3)}.json" for step in range(40)
    ]
    for arrival in found.arrivals:
        assert arrival.waited_ms == pytest.approx(0.3, abs=0.001)
    assert [row.last_arrivals for row in found.rows] == [1, 39]
    assert found.rows[1].waited_for_ms == pytest.approx(39 * 0.3, rel=0.01)
    assert "The last to arrive at 39 of 40 collectives is rank 1" in found.headline
    assert found.slowest == "rank1.json"
    assert found.notes == ()


def test_recordings_that_begin_at_different_steps_are_matched_by_their_ends() -> None:
    found = both(rank_trace(0, skipped=2), rank_trace(1, skew_us=55_000))
    assert [arrival.last for arrival in found.arrivals] == [
        f"rank{int(step != 3)}.json" for step in range(2, 40)
    ]


def test_collectives_of_another_run_are_not_matched_and_the_report_says_so() -> None:
    found = both(rank_trace(0), rank_trace(1, seed=1))
    assert found.arrivals == ()
    assert [row.last_arrivals for row in found.rows] == [None, None]
    assert any("could not be matched" in note for note in found.notes)


def test_one_rank_of_three_that_does_not_match_leaves_the_others_alone() -> None:
    found = both(rank_trace(0), rank_trace(1), rank_trace(1, seed=1))
    assert {arrival.last for arrival in found.arrivals} == {"rank0.json", "rank1.json"}
    assert [row.last_arrivals for row in found.rows] == [1, 39, None]
    assert "rank2.json" in found.notes[0]


def test_ranks_that_arrive_together_have_no_last_one() -> None:
    found = both(rank_trace(0, late_us=0), rank_trace(1, late_us=0))
    assert len(found.arrivals) == 40
    assert "last to arrive" not in found.headline


def test_ranks_without_collectives_have_no_arrivals() -> None:
    empty = Collectives((), np.zeros(0, np.int64), np.zeros(0, np.int64))
    one = collectives_of(rank_trace(0).trace())
    assert arrivals({"a": empty, "b": one}) == ((), ())
    assert arrivals({}) == ((), ())


# ------------------------------------------------------------------------------ ranks


def test_a_file_that_could_not_be_read_is_a_row_and_a_note() -> None:
    found = ranks_of([row(0, 5, 1), row(1, 6, 0), RankRow("broken.json", problem="is damaged")])
    assert found.notes == ("broken.json: is damaged",)
    assert "2 of 3 ranks" in found.headline


def recorded(name: str, target: str, rank: int | None = None) -> RankRow:
    return RankRow(name, rank, 5.0, own_ms=5.0, recommendation="adopt", target=target)


@pytest.mark.parametrize(
    "rows",
    [
        [recorded("b", "train.py"), recorded("a", "serve.py")],
        [recorded("b", "train.py", 0), recorded("a", "serve.py", 1)],
        [recorded("b", "train.py", 0), recorded("a", "train.py", 0)],
        [RankRow("b.json", recommendation="adopt"), RankRow("a.json", recommendation="adopt")],
        [
            RankRow("b.json", 0, recommendation="adopt", world_size=2),
            RankRow("a.json", 1, recommendation="adopt", world_size=8),
        ],
    ],
    ids=["commands", "ranks of different commands", "one rank twice", "no rank", "other sizes"],
)
def test_files_that_are_not_ranks_of_one_run_are_a_table_of_files(rows: list[RankRow]) -> None:
    found = ranks_of(rows)
    assert found.kind == "files"
    assert found.headline == "2 files: 2 adopt."
    assert [row.name[0] for row in found.rows] == ["a", "b"]
    assert found.slowest is None
    assert found.skews == ()
    assert ranks_of(rows, is_one_run=True).kind == "ranks"


def test_one_file_with_a_rank_among_files_that_cannot_be_read_makes_no_ranks() -> None:
    broken = [RankRow(f"{index}.json", problem="is damaged") for index in range(13)]
    found = ranks_of([RankRow("a.json", 0, recommendation="adopt"), *broken])
    assert found.kind == "files"
    assert found.headline == "1 of 14 files: 1 adopt."


def test_the_report_of_a_folder_names_the_last_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        rank_trace(rank, skew_us=rank * 5_000).write(tmp_path / f"rank{rank}.json")
    found = find_input([tmp_path], ReadOptions(15.0, None)).read(Progress())
    assert isinstance(found, Ranks)
    assert [row.last_arrivals for row in found.rows] == [1, 39]
