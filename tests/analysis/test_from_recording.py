"""From a recording to a Profile: whole, partial, contradictory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchscope.analysis import build_profile
from launchscope.analysis.metrics import UNITS
from launchscope.analysis.replay_model.prediction import KERNEL_MS, START_MS
from launchscope.model import (
    InspectResult,
    OptimizerChange,
    PassFailure,
    Profile,
    Reason,
    ReplayResult,
    SourceLine,
    StepBoundary,
    StepKind,
    TraceResult,
    Verdict,
)
from launchscope.parser import read_recording
from launchscope.rules import advise
from tests.builders import TraceBuilder, known, loop_trace, recording, timing, trace
from tests.rules.cases import verdict
from tests.shapes import tensors

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
MEASURED = ReplayResult(
    "measured",
    eager_bursts=((2.4, 2.5), (2.5, 2.6)),
    replay_bursts=((0.5, 0.5), (0.51, 0.49)),
    host_replay_us=(20.0, 22.0),
    capture_ms=30.0,
    instantiate_ms=5.0,
    first_replay_ms=1.0,
    input_tensors=2,
    input_bytes=4096,
)

FOUR, EIGHT = tensors("(4,) int64"), tensors("(8,) int64")


def host_bound() -> TraceBuilder:
    """100 launches of 5 us, one every 25 us, and 0.5 ms between steps: 3.0 ms an iteration."""

    def body(b: TraceBuilder) -> None:
        for _ in range(100):
            b.launch(5, call_us=5).work(20)

    return loop_trace(5, body, lambda b: b.work(500))


def whole(tmp_path: Path, **changes: Any) -> Profile:
    changes = {"timing": timing(iteration_ms=3.0, step_ms=2.5), **changes}
    return build_profile(recording(tmp_path, host_bound(), **changes))


def measured_keys(profile: Profile) -> set[str]:
    return {key for key, metric in profile.metrics.items() if metric.value is not None}


def test_a_host_bound_step_with_a_measured_replay(tmp_path: Path) -> None:
    profile = whole(tmp_path, replay=MEASURED)
    assert profile.metrics["launches_per_step"].exact
    assert profile.value("launches_per_step") == 100
    assert profile.value("gpu_busy_ms") == pytest.approx(0.5)
    assert profile.value("gpu_idle_ms") == pytest.approx(2.5)
    assert profile.value("launch_overhead_ms") == pytest.approx(2.5, abs=0.01)
    assert profile.value("replay_ms") == pytest.approx(0.5)
    assert profile.value("speedup") == pytest.approx(5.0)
    # The host may work between steps while the GPU replays.
    assert known(profile.metrics["removable_pct"].high) == pytest.approx(83.3, abs=1)


TRACED_OR_NOT = pytest.mark.parametrize("trace", [{}, {"trace": None}], ids=["traced", "not"])


@TRACED_OR_NOT
def test_no_replay_makes_an_iteration_shorter_than_its_batch_takes_the_workers(
    tmp_path: Path, trace: dict[str, Any]
) -> None:
    times = timing(iteration_ms=3.0, step_ms=2.5, steps=30)

    def with_workers(cpu_ms: int) -> Profile:
        loaded = replace(times, loader_workers=2, loader_cpu_ns=cpu_ms * 10**6)
        return whole(tmp_path, timing=loaded, replay=MEASURED, **trace)

    free = with_workers(6)
    assert known(free.value("replayed_iteration_ms")) < 1.1
    for cpu_ms, projected, share in ((150, 2.5, 16.7), (500, 3.0, 0.0)):
        profile = with_workers(cpu_ms)
        assert profile.value("replayed_iteration_ms") == pytest.approx(projected)
        assert profile.value("removable_pct") == pytest.approx(share, abs=0.1)
        assert known(profile.metrics["removable_pct"].high) <= share + 0.1
    given = verdict(with_workers(174))
    assert (given.recommendation, given.because[0]) == ("stay_eager", "LS020")
    assert given.headline == (
        "Fix the input pipeline first: the data loader's 2 workers take 2.90 ms per step, in "
        "parallel. A replay takes 80 % off the step, but it shortens the iteration by 3.3 %, from "
        "3.00 ms to 2.90 ms (1.03x), below your threshold of 15 %."
    )


def test_a_loader_whose_batches_come_in_bursts_leaves_no_doubt_that_it_is_the_limit(
    tmp_path: Path,
) -> None:
    times = timing(iteration_ms=3.0, step_ms=2.5, jitter_ms=9.0, steps=30)

    def with_workers(cpu_ms: int) -> Verdict:
        loaded = replace(times, loader_workers=2, loader_cpu_ns=cpu_ms * 10**6)
        return verdict(whole(tmp_path, timing=loaded, replay=MEASURED))

    assert with_workers(6).recommendation != "stay_eager"
    limited = with_workers(500)
    assert (limited.recommendation, limited.because[0]) == ("stay_eager", "LS020")


def test_without_a_replay_the_prediction_is_used(tmp_path: Path) -> None:
    profile = whole(tmp_path)
    assert profile.value("predicted_replay_ms") == pytest.approx(0.5 + KERNEL_MS * 100 + START_MS)
    predicted = profile.metrics["predicted_replay_ms"]
    assert known(predicted.low) < known(predicted.value) < known(predicted.high)
    assert profile.value("replay_ms") is None
    assert profile.iteration_source == "predicted"
    assert profile.value("removable_pct") == pytest.approx(66, abs=2)
    assert profile.replay.status == "skipped"


def test_a_gpu_bound_step_has_nothing_to_remove(tmp_path: Path) -> None:
    def body(b: TraceBuilder) -> None:
        for _ in range(300):
            b.launch(10, call_us=9)

    times = timing(iteration_ms=3.0, step_ms=3.0, host_ms=2.7, host_iteration_ms=2.7)
    profile = build_profile(recording(tmp_path, loop_trace(6, body), timing=times))
    assert profile.value("gpu_idle_ms") == pytest.approx(0, abs=0.01)
    # Of the 3.0 ms nothing can go: the prediction adds its cost per kernel.
    added_ms = KERNEL_MS * 300 + START_MS
    assert profile.value("removable_pct") == pytest.approx(-100 * added_ms / 3.0, abs=1.5)
    assert profile.value("launch_share_pct") == pytest.approx(90, abs=1)


def full_step(tmp_path: Path, between: Callable[[TraceBuilder], object]) -> Profile:
    """300 kernels of 10 us launched every 9 us, and 1 ms of host work between steps."""

    def body(b: TraceBuilder) -> None:
        for _ in range(300):
            b.launch(10, 5, call_us=4).work(5)

    times = timing(iteration_ms=4.0, step_ms=3.0, host_ms=2.7)
    replay = replace(MEASURED, replay_bursts=((3.0, 3.0),) * 2)
    built = loop_trace(6, body, between)
    return build_profile(recording(tmp_path, built, timing=times, replay=replay))


def test_host_work_between_steps_may_run_beside_a_replay_unless_it_waits(tmp_path: Path) -> None:
    profile = full_step(tmp_path, lambda b: b.work(1000))
    assert profile.value("replayed_iteration_ms") == pytest.approx(4.0)
    assert profile.facts.removable_step_pct == pytest.approx(0, abs=0.1)
    assert known(profile.metrics["removable_pct"].high) == pytest.approx(25, abs=1)
    waiting = full_step(tmp_path, lambda b: b.sync().work(1000))
    assert known(waiting.metrics["removable_pct"].high) == pytest.approx(0, abs=1)


def test_a_synchronization_in_each_step_has_its_wait(tmp_path: Path) -> None:
    def body(b: TraceBuilder) -> None:
        for _ in range(100):
            b.launch(20, call_us=10)
        b.sync(wake_us=4)

    built = loop_trace(5, body, lambda b: b.work(500))
    # Per iteration: 0.5 ms alone, 2 ms of kernels, and the way there and back.
    times = timing(iteration_ms=2.51, step_ms=2.01)
    profile = build_profile(recording(tmp_path, built, timing=times))
    assert profile.value("syncs_per_step") == 1
    assert profile.value("sync_wait_ms") == pytest.approx(0.5, abs=0.05)


def test_busy_time_above_the_interval_is_noted_and_never_clamped(tmp_path: Path) -> None:
    profile = whole(tmp_path, timing=timing(iteration_ms=0.45, step_ms=0.4))
    assert profile.facts.busy_exceeds_interval_pct == pytest.approx(11.1, abs=0.1)
    assert profile.value("gpu_idle_ms") is None
    assert any("its idle time is unknown" in note for note in profile.notes)
    # Without a replay that was measured nothing shows a gain.
    assert profile.value("removable_pct") is None
    given = verdict(profile)
    assert (given.recommendation, given.confidence) == ("inconclusive", "low")
    assert given.because[0] == "LS004"
    assert "takes 11 % longer than the iteration that was timed" in given.headline
    assert "A measured replay would decide it" in given.headline


def waiting(folder: Path, iteration_ms: float) -> Profile:
    """2.0 ms of work and 1.9 ms of waits in a traced iteration."""
    built = loop_trace(5, lambda b: b.launch(2000), lambda b: b.sync().data(1900))
    times = timing(iteration_ms=iteration_ms, step_ms=2.0, host_ms=0.01)
    return build_profile(recording(folder, built, timing=times))


def test_waits_a_little_longer_than_the_idle_time_keep_the_sum(tmp_path: Path) -> None:
    profile = waiting(tmp_path, 3.8)
    assert profile.facts.waits_exceed_idle_pct is None
    assert profile.value("launch_overhead_ms") == 0
    causes = ("sync_wait_ms", "data_wait_ms", "dispatch_gap_ms", "unattributed_ms")
    total = sum(profile.value(key) or 0.0 for key in causes)
    assert total == pytest.approx(profile.value("gpu_idle_ms"))


def test_the_waits_of_slower_traced_steps_are_not_those_of_the_timed_ones(tmp_path: Path) -> None:
    profile = waiting(tmp_path, 2.2)
    assert profile.facts.waits_exceed_idle_pct == pytest.approx(39.7, abs=0.1)
    assert profile.value("gpu_idle_ms") == pytest.approx(0.2)
    split = ("launch_overhead_ms", "launch_overhead_pct", "framework_ms", "launch_call_ms",
             "sync_wait_ms", "data_wait_ms", "setup_ms", "dispatch_gap_ms", "unattributed_ms",
             "step_overhead_pct")  # fmt: skip
    assert not measured_keys(profile) & set(split)


# ------------------------------------------------------------------- partial recordings


def test_every_key_is_always_there_and_an_empty_recording_measures_nothing(tmp_path: Path) -> None:
    profile = build_profile(recording(tmp_path))
    assert list(profile.metrics) == list(UNITS)
    assert measured_keys(profile) == set()
    assert profile.shapes.stable is None


def test_a_rehearsal_knows_ops_and_shapes_only(tmp_path: Path) -> None:
    inspected = InspectResult(3, ("a", "b", "a"), (FOUR, EIGHT, FOUR), (7, 7, 7), (), partial=True)
    profile = build_profile(recording(tmp_path, mode="rehearsal", inspect=inspected))
    assert measured_keys(profile) == {"device_ops_per_step", "shape_signatures"}
    assert not profile.metrics["device_ops_per_step"].exact
    assert profile.shapes.stable is False
    assert [(s.steps, s.inputs) for s in profile.shapes.signatures] == [(2, FOUR), (1, EIGHT)]


def test_timing_alone_gives_times_alone(tmp_path: Path) -> None:
    profile = build_profile(recording(tmp_path, timing=timing()))
    assert measured_keys(profile) == {
        "iteration_ms", "host_iteration_ms", "step_ms", "step_p95_ms", "host_ms",
    }  # fmt: skip
    assert len(profile.metrics["iteration_ms"].samples) == 29


def test_a_trace_alone_gives_counts_and_busy_time(tmp_path: Path) -> None:
    profile = build_profile(recording(tmp_path, host_bound()))
    found = measured_keys(profile)
    assert {"launches_per_step", "gpu_busy_ms", "predicted_replay_ms"} <= found
    assert not {"step_ms", "gpu_idle_ms", "removable_pct", "launch_share_pct"} & found


def test_a_missing_trace_costs_only_what_it_would_have_shown(tmp_path: Path) -> None:
    lost = TraceResult("gone.json", 4, 1, False)
    profile = build_profile(recording(tmp_path, timing=timing(), trace=lost))
    assert profile.value("step_ms") == pytest.approx(2.5)
    assert any("cannot be read" in note for note in profile.notes)


def test_a_trace_without_a_whole_step_is_noted(tmp_path: Path) -> None:
    profile = build_profile(recording(tmp_path, trace().calibration(), timing=timing()))
    assert profile.value("launches_per_step") is None
    assert any("no whole step" in note or "no work" in note for note in profile.notes)


def test_failed_passes_are_noted(tmp_path: Path) -> None:
    failures = (
        PassFailure("replay", Reason("hung"), SourceLine("train.py", 3)),
        PassFailure("verify", Reason("time_limit")),
    )
    profile = whole(tmp_path, failures=failures)
    assert profile.facts.has_pass_failures is True
    assert (profile.replay.status, profile.replay.reason) == ("failed", Reason("hung"))
    assert profile.replay.correct.reason == Reason("time_limit")


def test_a_blocked_replay_keeps_its_reason_and_no_times(tmp_path: Path) -> None:
    profile = whole(
        tmp_path,
        replay=ReplayResult(
            "blocked", Reason("no_stub", {"op": "cudaStreamSynchronize"}), SourceLine("train.py", 9)
        ),
    )
    assert (profile.replay.status, profile.replay.where) == ("blocked", SourceLine("train.py", 9))
    assert profile.value("replay_ms") is None
    assert profile.iteration_source == "predicted"


def test_steps_of_another_kind_are_left_out(tmp_path: Path) -> None:
    built = trace()
    for index in range(6):
        built.step()
        for _ in range(3 if index % 2 else 8):
            built.launch().work(10)
    rec = recording(tmp_path, built, timing=replace(timing(steps=6), kind=(0, 1, 0, 1, 0, 1)))
    kinds = (StepKind("prefill", None, 5.0), StepKind("decode", None, 95.0))
    step = StepBoundary("forward", ("forward",), ("M",), "forward", kinds=kinds)
    assert rec.trace is not None
    rec = replace(rec, step=step, trace=replace(rec.trace, kind=(0, 1, 0, 1, 0, 1)))
    profile = build_profile(rec)
    assert profile.value("launches_per_step") == 3
    assert len(profile.metrics["step_ms"].samples) == 3


def test_kernels_on_the_legacy_stream_are_counted_when_a_side_stream_was_set(
    tmp_path: Path,
) -> None:
    built = loop_trace(4, lambda b: b.launch().launch(name="foreign", stream=7).work(30))
    profile = build_profile(recording(tmp_path, built, timing=timing()))
    assert profile.facts.legacy_stream_kernels == 1


def test_the_bounds_include_the_eager_steps_between_the_replays(tmp_path: Path) -> None:
    times = timing(iteration_ms=3.0, step_ms=2.5)
    calm = replace(MEASURED, eager_bursts=((2.5,), (2.5,)))
    quicker = replace(MEASURED, eager_bursts=((1.5,), (1.5,)))
    slower = replace(MEASURED, eager_bursts=((4.5,), (4.5,)))
    other = replace(quicker, changes=(OptimizerChange("AdamW", "capturable", True),))

    def bounds(replay: ReplayResult) -> tuple[float, float]:
        profile = build_profile(recording(tmp_path, timing=times, replay=replay))
        removable = profile.metrics["removable_pct"]
        return known(removable.low), known(removable.high)

    low, high = bounds(calm)
    assert list(bounds(quicker)) == pytest.approx([50, high], abs=2)
    assert list(bounds(slower)) == pytest.approx([low, 90], abs=2)
    assert bounds(other) == (low, high)  # not the person's own eager


@TRACED_OR_NOT
def test_a_measured_replay_projects_the_iteration(tmp_path: Path, trace: dict[str, Any]) -> None:
    profile = whole(tmp_path, replay=MEASURED, **trace)
    assert profile.value("replayed_iteration_ms") == pytest.approx(1.0)
    assert profile.value("removable_pct") == pytest.approx(66.7, abs=0.1)
    assert profile.value("break_even_steps") == 18
    removable = profile.metrics["removable_pct"]
    assert known(removable.low) <= known(removable.value) <= known(removable.high)
    assert profile.iteration_source == "subtracted"
    given = verdict(profile)
    assert (given.recommendation, given.basis) == ("adopt", "measured")


def test_a_measured_replay_outweighs_a_trace_that_contradicts_the_timings(tmp_path: Path) -> None:
    times = timing(iteration_ms=0.45, step_ms=0.44)  # the trace: 0.5 ms busy

    def built(eager_ms: float, changes: tuple[OptimizerChange, ...] = ()) -> Profile:
        bursts = ((eager_ms, eager_ms), (eager_ms, eager_ms))
        replay = replace(
            MEASURED, eager_bursts=bursts, replay_bursts=((0.42, 0.42),) * 2, changes=changes
        )
        return advise(whole(tmp_path, timing=times, replay=replay))

    again = built(0.445)
    assert again.iteration_source == "subtracted"
    assert again.value("removable_pct") == pytest.approx(4.4, abs=0.1)
    assert (verdict(again).recommendation, verdict(again).basis) == ("stay_eager", "measured")
    assert "LS004" in {finding.code for finding in again.findings}
    other = built(0.445, (OptimizerChange("AdamW", "capturable", True),))
    assert verdict(other).recommendation == "stay_eager"
    # Eager steps that took longer beside the replays than in the timing pass widen the bounds.
    slower = built(0.6).metrics["removable_pct"]
    assert known(slower.high) > 25 > known(again.metrics["removable_pct"].high)


def test_counts_from_the_recording_are_exact(tmp_path: Path) -> None:
    inspected = InspectResult(2, ("a", "a"), (FOUR, FOUR), (7, 7), ())
    result = replace(MEASURED, graph_nodes=101)
    profile = build_profile(recording(tmp_path, inspect=inspected, replay=result))
    for key in ("graph_nodes", "shape_signatures"):
        assert profile.metrics[key].exact
    assert not build_profile(recording(tmp_path)).metrics["graph_nodes"].exact


# ------------------------------------------------------------------ recorded on a GPU


FOUND = sorted(RECORDINGS.glob("*/recording.json"))


@pytest.mark.parametrize("file", FOUND, ids=lambda path: str(path.parent.name))
def test_the_figures_of_a_real_recording_agree(file: Path) -> None:
    profile = build_profile(read_recording(file))
    assert list(profile.metrics) == list(UNITS)
    idle = profile.value("gpu_idle_ms")
    if idle is not None:
        causes = ("launch_overhead_ms", "sync_wait_ms", "data_wait_ms", "dispatch_gap_ms",
                  "unattributed_ms")  # fmt: skip
        assert sum(profile.value(key) or 0 for key in causes) == pytest.approx(idle)
    if profile.facts.join_coverage_pct is not None:
        assert profile.facts.join_coverage_pct > 99
