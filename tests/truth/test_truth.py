"""What a trace says, against times measured without a profiler in the process that recorded it.

The traces and their truth are from one machine with two H200s (tests/truth/record.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from launchscope.model import Profile
from launchscope.model.comparison import Ranks
from launchscope.workflows.load_input import ReadOptions, find_input, profile_of
from launchscope.workflows.progress import Progress
from tests.truth.record import STRAGGLER_MS

HERE = Path(__file__).parent
OPTIONS = ReadOptions(15.0, None)


def read(name: str) -> Profile:
    return profile_of(HERE / f"{name}.json.gz", OPTIONS)


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
    assert not read_.step_groups


def test_a_serving_loop_with_graphs_names_the_sizes_that_have_none() -> None:
    read_, true = read("serving_graphs"), truth("serving_graphs")
    assert advice(read_) == "already_graphed"
    eager = {group.name: group for group in read_.step_groups if not group.graph_launches}
    assert set(eager) == {f"step[DECODE bs={size}]" for size in true["sizes"] if size > 8}
    for size in (12, 16):
        predicted = eager[f"step[DECODE bs={size}]"].predicted_replay_ms
        assert predicted == pytest.approx(true["times"][str(size)]["replay_ms"], rel=0.05)
    # With a graph for each size the loop is as long as its replays.
    padded = {
        size: next((known for known in true["graphed"] if known >= size), size)
        for size in true["sizes"]
    }
    replays = [true["times"][str(padded[size])]["replay_ms"] for size in true["sizes"]]
    gain = 100 * (1 - mean(replays) / mean(true["iteration_ms"]))
    low, high = bounds(read_, "more_graphs_pct")
    assert low < gain < high
    assert read_.value("more_graphs_pct") == pytest.approx(gain, abs=8)
    assert "LS013" in {finding.code for finding in read_.findings}


def test_the_late_rank_is_named_and_the_waiting_one_gets_no_verdict(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json.gz").symlink_to(HERE / f"rank{rank}.json.gz")
    ranks = find_input([tmp_path], OPTIONS).read(Progress())
    assert isinstance(ranks, Ranks)
    rows = {row.rank: row for row in ranks.rows}
    assert ranks.slowest == "rank1.json.gz"
    assert rows[1].last_arrivals == len(ranks.arrivals)
    assert not rows[0].last_arrivals
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
    codes = {finding.code for finding in alone.findings}
    assert "LS022" in codes
    assert "LS007" not in codes  # a collective that waits is no large kernel
