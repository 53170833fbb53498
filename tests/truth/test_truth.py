"""What a trace says, against times measured without a profiler in the process that recorded it.

The traces and their truth are from one machine with two H200s: each program timed its loop untraced
(wall time of many iterations, and the same with the step replayed), was recorded with
torch.profiler alone, and was timed once more (tests/truth/record.py of commit 8b2e4e4f).
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from launchscope.model import Profile
from launchscope.model.ranks import Ranks
from launchscope.workflows.load_input import ReadOptions, profile_of, read_input
from launchscope.workflows.progress import Progress
from tests.truth.raw import Iteration, busy_ms, file_of, iterations, length

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RECORDINGS = HERE.parents[1] / "sample_workloads/recordings"
OPTIONS = ReadOptions(15.0, None, details=True)
# Traces and what marks their steps. The recordings wait for the GPU and for data in their steps.
MARKS = {
    "training_eager": "ProfilerStep",
    "training_replayed": "ProfilerStep",
    "serving_eager": "step[",
    "serving_graphs": "step[",
    "rank0": "ProfilerStep",
    "rank1": "ProfilerStep",
    **dict.fromkeys(("item_in_step", "small_mlp", "variable_lengths", "gan"), "launchscope.step"),
}
STRAGGLER_MS = 4.0  # of rank 1, in each step
RECORDED_MS, MOST_RECORDED = 2.2e-3, 0.55  # of an operator or call, and of the time exposed


def path_of(name: str) -> Path:
    own = HERE / f"{name}.json.gz"
    return own if own.exists() else RECORDINGS / name / "trace.kineto.json.gz"


@cache
def read(name: str) -> Profile:
    return profile_of(path_of(name), OPTIONS)


@cache
def raw(name: str) -> list[Iteration]:
    return iterations(path_of(name), MARKS[name])


def samples(profile: Profile, key: str) -> list[float]:
    return list(profile.metrics[key].samples)


def value(profile: Profile, key: str) -> float:
    found = profile.value(key)
    assert found is not None, key
    return found


def untraced_ms(each: Iteration) -> float:
    """Without the usual cost of recording."""
    late = each.idle["framework"] + each.idle["launch_call"]
    late = max(late - each.idle["unsure"] / 2, 0.0)
    return each.traced_ms - min(RECORDED_MS * each.recorded, MOST_RECORDED * late)


def truth(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / f"{name}.truth.json").read_text())
    return values


def advice(profile: Profile) -> str | None:
    return profile.verdict.recommendation if profile.verdict else None


def bounds(profile: Profile, key: str) -> tuple[float, float]:
    metric = profile.metrics[key]
    assert metric.low is not None
    assert metric.high is not None
    return metric.low, metric.high


@pytest.mark.parametrize("name", MARKS)
def test_every_step_has_the_counts_and_times_of_the_file(name: str) -> None:
    read_, steps = read(name), raw(name)
    assert samples(read_, "launches_per_step") == [each.launches() for each in steps]
    graphs = [each.launches(graphs=True) for each in steps]
    assert samples(read_, "graph_launches_per_step") == graphs
    kernels = [sum(work.is_kernel for work in each.in_step) for each in steps]
    assert samples(read_, "kernels_per_step") == kernels
    assert samples(read_, "gpu_busy_ms") == pytest.approx([busy_ms(e.in_step) for e in steps])
    assert samples(read_, "iteration_busy_ms") == pytest.approx([busy_ms(e.work) for e in steps])
    assert samples(read_, "iteration_ms") == pytest.approx([untraced_ms(each) for each in steps])
    traced = median(each.traced_ms for each in steps)
    high = read_.metrics["iteration_ms"].high
    assert (value(read_, "iteration_ms") if high is None else high) == pytest.approx(traced, 0.01)


@pytest.mark.parametrize("name", MARKS)
def test_idle_time_has_the_causes_that_the_file_shows(name: str) -> None:
    read_, steps = read(name), raw(name)

    def usual(cause: str) -> float:
        return median(each.idle[cause] for each in steps)

    assert value(read_, "dispatch_gap_ms") == pytest.approx(usual("dispatch"), abs=1e-6)
    assert value(read_, "sync_wait_ms") == pytest.approx(usual("sync"), abs=1e-6)
    assert value(read_, "unattributed_ms") == pytest.approx(usual("pause"), abs=1e-6)
    assert value(read_, "setup_ms") == 0
    # Recording stretches the time between steps, in which the data is loaded.
    data = value(read_, "data_wait_ms")
    assert 0.3 * usual("data") <= data <= usual("data")
    idle = max(value(read_, "iteration_ms") - value(read_, "iteration_busy_ms"), 0.0)
    assert value(read_, "gpu_idle_ms") == pytest.approx(idle)
    late = idle - data - sum(map(usual, ("dispatch", "sync", "pause")))
    assert value(read_, "launch_overhead_ms") == pytest.approx(max(late, 0.0), abs=1e-5)
    framework, in_call = (
        sum(each.idle[cause] for each in steps) for cause in ("framework", "launch_call")
    )
    if framework + in_call > 0.001:
        share = value(read_, "framework_ms") / value(read_, "launch_overhead_ms")
        assert share == pytest.approx(framework / (framework + in_call))
    assert value(read_, "framework_ms") + value(read_, "launch_call_ms") == pytest.approx(
        value(read_, "launch_overhead_ms")
    )
    rows = read_.launches_by_operator
    if rows is not None:
        overhead = value(read_, "launch_overhead_ms")
        assert sum(row.idle_ms or 0 for row in rows) == pytest.approx(overhead)
        launches = mean(each.launches() for each in steps)
        inside = sum(row.launches for row in rows if row.part != "between_steps")
        assert inside == pytest.approx(launches)


@pytest.mark.parametrize("name", MARKS)
def test_calls_queue_and_kernels_are_those_of_the_file(name: str) -> None:
    read_, steps = read(name), raw(name)
    asynchronous = [
        [call for call in each.calls if call.begin >= each.begin and not call.waits]
        for each in steps
    ]
    if value(read_, "blocked_launch_ms") == 0:
        spent = [sum(call.end - call.begin for call in calls) / 1e6 for calls in asynchronous]
        assert samples(read_, "launch_api_raw_ms") == pytest.approx(spent)
    launching = [[c for c in calls if any(w.is_kernel for w in c.work)] for calls in asynchronous]
    first = [[min(work.begin for work in call.work) for call in calls] for calls in launching]
    pairs = [list(zip(at, calls)) for at, calls in zip(first, launching)]
    delays = [median(at - call.end for at, call in each) / 1e3 for each in pairs]
    assert samples(read_, "queue_delay_us") == pytest.approx(delays)
    waits = [sum(at - call.begin for at, call in each) / 1e6 for each in pairs]
    assert samples(read_, "tklqt_ms") == pytest.approx(waits)
    inside = [work for each in steps for work in each.in_step]
    count = Counter(work.name for work in inside)
    assert {row.name: row.count for row in read_.kernels} == pytest.approx(
        {kernel: number / len(steps) for kernel, number in count.items()}
    )
    total_us = sum(work.end - work.begin for work in inside) / 1e3 / len(steps)
    assert sum(row.total_us for row in read_.kernels) == pytest.approx(total_us)
    (row,) = read_.devices
    everything = file_of(path_of(name)).work
    assert row.kernels == sum(work.is_kernel for work in everything)
    assert row.launches == len({id(work.call) for work in everything if work.call})
    spans = [(work.begin, work.end) for work in everything]
    assert row.busy_ms == pytest.approx(length(spans) / 1e6)
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    assert row.idle_ms == pytest.approx((whole - length(spans)) / 1e6)


@pytest.mark.parametrize("name", MARKS)
def test_the_step_lasts_from_when_the_gpu_could_begin_to_its_last_work(name: str) -> None:
    read_, steps = read(name), raw(name)
    high = [
        (max(work.end for work in each.in_step) - max(each.begin, each.free)) / 1e6
        for each in steps
    ]
    late = [each.traced_ms - untraced_ms(each) for each in steps]
    for sample, most, recording in zip(samples(read_, "step_ms"), high, late):
        assert most - recording - 1e-6 <= sample <= most + 1e-6
    host = median(samples(read_, "host_ms"))
    busy = value(read_, "gpu_busy_ms")
    own = max(host - value(read_, "blocked_launch_ms"), 0.0)
    assert value(read_, "hdbi") == pytest.approx(busy / (busy + own))
    api = value(read_, "launch_api_ms")
    step = median(samples(read_, "step_ms"))
    assert value(read_, "launch_share_pct") == pytest.approx(100 * api / step)
    overhead = value(read_, "launch_overhead_ms")
    share = 100 * overhead / value(read_, "iteration_ms")
    assert value(read_, "launch_overhead_pct") == pytest.approx(share)


@pytest.mark.parametrize("name", ["training_eager", "with_setup", "serving_eager", "rank1"])
def test_what_a_replay_gives_follows_from_its_prediction(name: str) -> None:
    read_ = read(name)
    replayed, iteration = value(read_, "replayed_iteration_ms"), value(read_, "iteration_ms")
    assert value(read_, "removable_pct") == pytest.approx(100 * (1 - replayed / iteration))
    assert value(read_, "iteration_speedup") == pytest.approx(iteration / replayed)
    # Nothing in these steps waits, and little work is between them.
    kept = value(read_, "unattributed_ms")
    assert replayed - kept == pytest.approx(value(read_, "predicted_replay_ms"), rel=0.1)
    nodes = value(read_, "kernels_per_step")
    busy = value(read_, "gpu_busy_ms")
    added = value(read_, "predicted_replay_ms") - busy
    assert 0.2e-3 * nodes < added < 2e-3 * nodes


@pytest.mark.parametrize("name", ["training_eager", "with_setup"])
def test_an_eager_loop_gets_the_gain_that_its_replay_has(name: str) -> None:
    read_, true = read(name), truth(name)
    assert advice(read_) == "adopt"
    low, high = bounds(read_, "predicted_replay_ms")
    assert low < mean(true["replay_ms"]) < high
    gain = 100 * (1 - mean(true["replay_ms"]) / mean(true["eager_ms"]))
    low, high = bounds(read_, "removable_pct")
    assert low < gain < high
    assert read_.value("removable_pct") == pytest.approx(gain, abs=8)
    low, high = bounds(read_, "iteration_ms")
    assert low < min(true["eager_ms"]) <= max(true["eager_ms"]) < high
    # The host's own work is why the GPU is idle.
    assert (read_.value("launch_overhead_ms") or 0) > 0.9 * (read_.value("gpu_idle_ms") or 0)


def test_set_up_within_a_recording_is_no_step() -> None:
    read_, true = read("with_setup"), truth("with_setup")
    iteration = read_.metrics["iteration_ms"]
    assert true["iterations"] - 3 <= len(iteration.samples) <= true["iterations"]
    assert max(iteration.samples) < 3 * mean(true["eager_ms"]) < true["setup_ms"]


def test_a_loop_that_replays_its_step_is_already_graphed() -> None:
    read_ = read("training_replayed")
    assert advice(read_) == "already_graphed"
    assert read_.facts.graph_kernel_share_pct == 100
    replay = mean(truth("training_replayed")["replay_ms"])
    assert read_.value("iteration_ms") == pytest.approx(replay, rel=0.08)


def test_a_serving_loop_without_graphs_gains_what_its_replays_take() -> None:
    read_, true = read("serving_eager"), truth("serving_eager")
    assert advice(read_) == "adopt"
    replays = [times["replay_ms"] for times in true["times"].values()]
    assert read_.value("predicted_replay_ms") == pytest.approx(mean(replays), rel=0.1)
    low, high = bounds(read_, "removable_pct")
    assert low < 100 * (1 - mean(replays) / mean(true["iteration_ms"])) < high


def test_a_serving_loop_with_graphs_for_most_sizes_is_already_graphed() -> None:
    read_, true = read("serving_graphs"), truth("serving_graphs")
    assert advice(read_) == "already_graphed"
    graphs = [float(size <= 8) for _ in range(3) for size in true["sizes"]]
    # The first step of all is left out.
    assert samples(read_, "graph_launches_per_step") == graphs[1:]


def test_the_late_rank_is_named_and_the_waiting_one_gets_no_verdict(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json.gz").symlink_to(HERE / f"rank{rank}.json.gz")
    ranks = read_input([tmp_path], OPTIONS, Progress())
    assert isinstance(ranks, Ranks)
    rows = {row.rank: row for row in ranks.rows}
    assert ranks.slowest == "rank1.json.gz"
    for rank in (0, 1):
        steps = raw(f"rank{rank}")
        kernels = [[work for work in each.in_step if work.is_kernel] for each in steps]
        communicating = [busy_ms([w for w in own if "nccl" in w.name]) for own in kernels]
        computing = [busy_ms([w for w in own if "nccl" not in w.name]) for own in kernels]
        exposed = [busy_ms(own) - rest for own, rest in zip(kernels, computing)]
        assert rows[rank].communication_ms == pytest.approx(median(communicating))
        assert rows[rank].exposed_communication_ms == pytest.approx(median(exposed))
        own = (rows[rank].iteration_ms or 0.0) - (rows[rank].exposed_communication_ms or 0.0)
        assert rows[rank].own_ms == pytest.approx(own)
    # Without the sleep its own work took as long as the even step, which another rank waits for.
    late = rows[1].own_ms or 0.0
    even, iteration = truth("rank1")["even_ms"][0], mean(truth("rank1")["iteration_ms"])
    assert late > even
    assert late == pytest.approx(iteration, rel=0.15)
    assert iteration - even == pytest.approx(STRAGGLER_MS, rel=0.25)
    assert rows[0].recommendation == "inconclusive"
    alone = read("rank0")
    assert alone.facts.gain_unknown is not None
    assert alone.facts.gain_unknown.code == "waits_for_ranks"
    assert "LS022" in {finding.code for finding in alone.findings}
    # A collective that waits is no large kernel.
    assert not any("100 us or more" in finding.title for finding in alone.findings)
