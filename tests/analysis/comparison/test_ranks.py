"""Ranks side by side: own time, collectives, who is late, and files that are no ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.analysis import build_profile, profile_of_trace
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.analysis.timeline.communication import is_collective
from launchscope.model import Profile
from launchscope.model.ranks import RankRow
from launchscope.report import render
from launchscope.rules import advise
from tests.builders import (
    STREAM,
    TraceBuilder,
    known,
    loop_trace,
    recording,
    timing,
    trace,
    traced_iteration_ms,
)

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


@pytest.mark.parametrize(
    ("busy", "overhead", "data", "cause"),
    [
        (8, 1, 1, "compute_ms"),
        (4, 5, 1, "launch_overhead_ms"),
        (4, 1, 5, "data_wait_ms"),
        (5, 2, 2, None),  # a little of each, and the rest of it is not known
    ],
)
def test_the_slowest_rank_is_named_with_what_it_does_longer_than_the_others(
    busy: float, overhead: float, data: float, cause: str | None
) -> None:
    def of(rank: int, own: float, *parts: float) -> RankRow:
        work, launching, waiting = parts
        return replace(
            row(rank, own, 12 - own),
            busy_ms=work + 12 - own,
            launch_overhead_ms=launching,
            data_wait_ms=waiting,
        )

    usual = [of(rank, 6, 4, 1, 1) for rank in (0, 2)]
    assert ranks_of([*usual, of(1, 10, busy, overhead, data)]).slowest_by == cause


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
    assert "collectives, exposed" in str(render(made, "markdown"))
    found = rank_row(made, "r0")
    assert found.iteration_ms is not None
    assert found.communication_ms == pytest.approx(0.4)
    assert found.exposed_communication_ms is not None
    assert 0.23 < found.exposed_communication_ms < 0.25
    assert found.own_ms == pytest.approx(found.iteration_ms - found.exposed_communication_ms)


def test_what_tracing_adds_to_the_wait_for_another_rank_is_not_busy_time(tmp_path: Path) -> None:
    """Of 2 ms, this rank computes 0.2 ms and mostly waits; the other rank, traced, takes 3 ms."""

    def step(builder: TraceBuilder) -> None:
        builder.launch(kernel_us=200, name="gemm")
        builder.launch(kernel_us=2500, name=ALL_REDUCE, stream=NCCL_STREAM).work(2985)

    times = timing(iteration_ms=2.0, step_ms=1.9)
    made = build_profile(recording(tmp_path, loop_trace(5, step), timing=times))
    assert made.facts.busy_exceeds_interval_pct is None
    # The all-reduce runs alone for 2.3 of the 2.8 ms that are not computing.
    assert made.value("exposed_communication_ms") == pytest.approx(2.3 * 1.8 / 2.8, rel=0.02)
    found = rank_row(made, "r0")
    assert found.compute_ms == pytest.approx(0.2, rel=0.02)
    assert found.own_ms == pytest.approx(2.0 - 2.3 * 1.8 / 2.8, rel=0.02)
    assert found.launch_overhead_ms is not None


@pytest.mark.parametrize(("wait_us", "gain_is_known"), [(400, False), (150, True)])
def test_waiting_in_collectives_is_neither_computing_nor_overhead_nor_gain(
    wait_us: float, gain_is_known: bool, tmp_path: Path
) -> None:
    """The optimizer waits for an all-reduce that runs beside kernels with gaps between them."""

    def step(builder: TraceBuilder) -> None:
        for index in range(20):
            builder.launch(kernel_us=5, name="gemm").work(10)
            if index == 5:
                builder.launch(kernel_us=wait_us, name=ALL_REDUCE, stream=NCCL_STREAM)
        builder._free[STREAM] = max(builder._free.values())
        for _ in range(5):
            builder.launch(kernel_us=5, name="optimizer").work(5)
        builder.sync()

    built = loop_trace(8, step)
    whole = traced_iteration_ms(built.trace())
    timed = timing(iteration_ms=whole, step_ms=0.97 * whole, jitter_ms=0.001)
    made = advise(build_profile(recording(tmp_path, built, timing=timed)))
    shown = str(render(made, "markdown"))
    alone = known(made.value("exposed_communication_ms"))
    computing = known(made.value("iteration_busy_ms")) - alone
    assert computing == pytest.approx(0.125)
    assert f"| GPU computing | {computing:.3f} ms |" in shown
    assert f"| collectives alone | {alone:.3f} ms |" in shown
    assert alone + known(made.value("launch_overhead_ms")) < whole - computing + 1e-3
    assert (made.value("removable_pct") is not None) == gain_is_known
    if gain_is_known:  # the replay waits for as long
        assert known(made.value("predicted_replay_ms")) > alone + computing
    else:
        assert made.facts.gain_unknown is not None
        assert made.facts.gain_unknown.code == "waits_for_ranks"


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


def test_ranks_that_are_missing_and_other_numbers_of_ranks_are_told() -> None:
    rows = [replace(row(rank, 5, 1), world_size=16) for rank in (0, 2, 3)]
    assert ranks_of(rows).notes == ("the files are of 3 of the run's 16 ranks",)
    mixed = ranks_of([rows[0], replace(rows[1], world_size=8)])
    assert mixed.kind == "files"
    assert mixed.notes == ("the files are of runs with 8 and 16 ranks",)
