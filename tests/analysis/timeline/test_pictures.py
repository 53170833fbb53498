"""The drawn intervals against the trace and the metrics."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from launchscope.analysis.timeline import pictures
from launchscope.analysis.timeline.pictures import timelines
from launchscope.analysis.timeline.timeline import CAUSES, build_timeline, idle_gaps
from launchscope.model import Label, Lane, Profile, StepTimeline, Timelines
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.builders import TraceBuilder, loop_trace, trace, work_of
from tests.truth.raw import length, union

ROOT = Path(__file__).parents[3]
MEASURED = [
    *sorted((ROOT / "sample_workloads/recordings").iterdir()),
    *sorted((ROOT / "tests/truth").glob("*.json.gz")),
]


def drawn(built: TraceBuilder) -> Timelines:
    work = work_of(built)
    return timelines(work, build_timeline(work), ((), np.full(len(work.launches), -1)))


def spans(step: StepTimeline, *kinds: str) -> list[tuple[int, int]]:
    """(start, end) of the intervals of these lanes, by start."""
    return sorted(
        (start, start + duration)
        for lane in step.lanes
        if lane.kind in kinds
        for start, duration in zip(lane.start_ns, lane.duration_ns)
    )


def lane(step: StepTimeline, kind: str) -> Lane:
    (found,) = [lane for lane in step.lanes if lane.kind == kind]
    return found


def names(found: Timelines, lane: Lane) -> list[str]:
    return [found.labels[number].name for number in lane.label]


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.name)
def test_intervals_add_up_to_the_metrics(path: Path) -> None:
    profile = profile_of(path, ReadOptions(15.0, None, details=True))
    assert isinstance(profile, Profile)
    assert profile.timelines is not None
    for step in (profile.timelines.eager, profile.timelines.replay):
        if step is None:
            # The trace of a replay is that of the whole step, of one shape.
            assert profile.replay.status not in ("measured", "what_if") or profile.replay.shapes
            continue
        busy, idle = union(spans(step, "gpu")), spans(step, "idle")
        assert length(busy) == step.busy_ns
        assert length(idle) == sum(part.ns for part in step.idle)
        # Busy and idle time take turns without a hole or an overlap.
        whole = union([*busy, *idle])
        assert whole == [(step.gpu_begin_ns, busy[-1][1])]
        assert length(whole) == length(busy) + length(idle)
        labels = profile.timelines.labels
        for part in step.idle:
            assert part.ns == sum(
                duration
                for duration, number in zip(
                    lane(step, "idle").duration_ns, lane(step, "idle").label
                )
                if labels[number] == Label("", part.cause)
            )
        for one in step.lanes:
            assert list(one.start_ns) == sorted(one.start_ns)
            assert len(one.start_ns) == len(one.duration_ns) == len(one.label)
            ends = map(sum, zip(one.start_ns, one.duration_ns))
            assert min(one.start_ns) >= 0
            assert max(ends) <= step.duration_ns
        begins = [begin for one in step.lanes if one.kind == "launch" for begin in one.start_ns]
        for one in step.lanes:
            assert all(
                at == -1 or begins[at] < start for start, at in zip(one.start_ns, one.launch)
            )
            assert set(one.source) <= {-1, *range(len(step.sources))}
    eager = profile.timelines.eager
    assert eager.busy_ns / 1e6 in profile.metrics["iteration_busy_ms"].samples
    assert eager.steps == len(profile.metrics["iteration_busy_ms"].samples)


def test_gaps_by_cause_sum_to_the_idle_time_of_every_iteration() -> None:
    def body(b: TraceBuilder) -> None:
        b.launch(3).work(9).launch(20).launch(4).work(5).sync().work(11).launch(2).launch(6)

    work = work_of(loop_trace(6, body, lambda b: b.data(40).memcpy().work(3)))
    timeline = build_timeline(work)
    for gaps, parts in zip(idle_gaps(work), (timeline.iteration_idle, timeline.step_idle)):
        for at, row in enumerate(work.iterations.used):
            own = gaps.group == row
            for cause in CAUSES:
                assert gaps.parts[cause][own].sum() == round(parts[cause][at] * 1e6)
            assert (gaps.end - gaps.start)[own].sum() == round(parts["idle"][at] * 1e6)


def test_the_iteration_nearest_to_the_median_is_drawn() -> None:
    built = trace()
    for us in (10, 90, 30, 31, 300, 32):
        built.step().launch(us).work(us)
    built.end()
    found = drawn(built)
    assert found.eager.busy_ns == 32_000
    assert found.eager.steps == 5


def test_nested_operators_are_one_interval_and_a_range_ends_with_its_iteration() -> None:
    built = trace()
    for _ in range(3):
        built.step().work(10)
        begin = built.host
        built.op("aten::linear").launch(3).work(5)
        built.op("aten::relu").launch(3).work(5)
        built.end()
        built.span("Optimizer.step#SGD.step", begin + 12, built.host + 500)
        built._event("cpu_op", "aten::addmm", begin + 1, 3, 403, 403, {})
    found = drawn(built)
    assert names(found, lane(found.eager, "operator")) == ["aten::linear", "aten::relu"]
    (named,) = names(found, lane(found.eager, "range"))
    assert named == "Optimizer.step#SGD.step"
    host_end = max(end for _, end in spans(found.eager, "operator"))
    assert spans(found.eager, "range")[0][1] == host_end


def test_work_of_other_iterations_shows_why_the_gpu_is_late() -> None:
    found = drawn(loop_trace(4, lambda b: b.launch(100).launch(100)))
    (other,) = spans(found.eager, "other")
    assert other[1] == found.eager.gpu_begin_ns
    assert lane(found.eager, "launch").start_ns[0] < other[1] - 100_000


def test_each_stream_and_thread_has_a_lane_of_its_own() -> None:
    found = drawn(
        loop_trace(3, lambda b: b.launch(10).launch(10, stream=14).launch(2, tid=9).work(30))
    )
    numbers = [(one.kind, one.number) for one in found.eager.lanes if one.kind in ("gpu", "launch")]
    assert numbers == [("launch", 9), ("launch", 403), ("gpu", 13), ("gpu", 14)]
    assert [one.launch for one in found.eager.lanes if one.kind == "gpu"] == [(1, 0), (2,)]


def test_a_long_step_is_merged_and_its_totals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    built = loop_trace(3, lambda b: [b.launch(1, call_us=4).work(i % 3) for i in range(2_000)])
    whole = drawn(built).eager
    monkeypatch.setattr(pictures, "_MOST_INTERVALS", 500)
    merged = drawn(built).eager
    assert whole.merged_below_ns is None
    assert merged.merged_below_ns is not None
    assert sum(len(one.start_ns) for one in merged.lanes) <= 500
    assert (merged.busy_ns, merged.idle) == (whole.busy_ns, whole.idle)
    for before, after in zip(whole.lanes, merged.lanes):
        assert (sum(after.count) or len(after.start_ns)) == len(before.start_ns)
        assert sum(after.duration_ns) == sum(before.duration_ns)
        assert list(after.start_ns) == sorted(after.start_ns)
    assert all(a <= b for (_, a), (b, _) in pairwise(spans(merged, "gpu")))


def test_a_replay_is_one_launch_and_no_wait_of_the_script() -> None:
    profile = profile_of(ROOT / "sample_workloads/recordings/small_gpt", ReadOptions(15.0, None))
    assert isinstance(profile, Profile)
    found = profile.timelines
    assert found is not None
    assert found.replay is not None
    launch = lane(found.replay, "launch")
    assert [found.labels[number].kind for number in launch.label] == ["graph"]
    assert {part.cause for part in found.replay.idle} <= {"framework", "launch_call", "dispatch"}
    replay_ms = profile.value("replay_ms")
    assert replay_ms is not None
    # Beside the work there is only the launch of the graph.
    assert found.replay.duration_ns / 1e6 == pytest.approx(replay_ms, rel=0.25)
