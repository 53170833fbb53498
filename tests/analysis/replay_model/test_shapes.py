"""The gain of graphs for the shapes that come back, weighted by how often each occurs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.analysis.replay_model.shapes import padded_replays
from launchscope.model import Reason, ReplayResult, ShapeBursts, ShapesResult, TensorShape
from launchscope.rules import advise
from tests.builders import recording, timing
from tests.rules.cases import verdict

SHORT, LONG = ((TensorShape((8, size), "float32"),) for size in (16, 64))


def test_each_shape_counts_as_often_as_it_occurs(tmp_path: Path) -> None:
    result = ShapesResult(
        (
            ShapeBursts(LONG, 20, ((4.0, 4.0),), ((3.0, 3.0),)),
            ShapeBursts(SHORT, 60, ((2.0,), (2.2,)), ((1.0,), (0.8,))),
        ),
        steps=100,
    )
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 2, "steps": 3}))
    times = timing(iteration_ms=4.0, step_ms=3.68)
    made = recording(tmp_path, timing=times, replay=skipped, replay_shapes=result)
    profile = build_profile(made)
    short, long = profile.replay.shapes
    assert short.inputs == SHORT
    assert short.share_pct == 60.0
    assert short.eager_ms == pytest.approx(2.1)
    assert (long.replay_ms, long.least_saved_ms, long.most_saved_ms) == (3.0, 1.0, 1.0)
    # 60 % save 1.2 ms and 20 % save 1 ms.
    removable = profile.metrics["removable_pct"]
    assert removable.value == pytest.approx(100 * 0.92 / 4.0)
    assert removable.low == pytest.approx(100 * (0.6 * 1.0 + 0.2) / 4.0)
    assert removable.high == pytest.approx(100 * (0.6 * 1.4 + 0.2) / 4.0)
    assert profile.value("replayed_iteration_ms") == pytest.approx(4.0 - 0.92)
    assert profile.value("replay_ms") == pytest.approx(3.68 - 0.92)
    assert profile.value("speedup") == pytest.approx(4 / 3)
    assert verdict(profile).basis == "measured"


@pytest.mark.parametrize(("replay_ms", "pays"), [(1.5, True), (3.5, False)])
def test_padding_to_one_size_decides_only_where_it_pays(
    tmp_path: Path, replay_ms: float, pays: bool
) -> None:
    """Several sizes may pay where one does not."""
    padded = ShapeBursts(LONG, 0, ((4.6, 2.6),), ((replay_ms,),), (400, 200))
    ended = Reason("error", {"kind": "RuntimeError", "error": "no capture"})
    sizes = tuple(range(200, 401, 50))
    result = ShapesResult((), 5, reason=ended, padded=(padded,), sizes=sizes)
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 3, "steps": 3}))
    times = timing(iteration_ms=4.0, step_ms=3.6)
    found = recording(tmp_path, timing=times, replay=skipped, replay_shapes=result)
    profile = build_profile(found)
    (only,) = profile.replay.padded
    # Steps whose eager time is shorter than the replay stay eager.
    assert (only.share_pct, only.eager_ms) == pytest.approx((100.0, 3.6) if pays else (60.0, 4.1))
    expected = pytest.approx(100 * (3.6 - replay_ms) / 4.0) if pays else None
    assert profile.value("removable_pct") == expected
    assert "the capture of one of the shapes failed: RuntimeError: no capture" in profile.notes


def test_graphs_for_few_of_the_steps_decide_only_where_they_pay(tmp_path: Path) -> None:
    few = ShapeBursts(SHORT, 8, ((2.0,),), ((0.5,),))
    most = replace(few, steps=60)
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 3, "steps": 3}))
    times = timing(iteration_ms=4.0, step_ms=3.6)

    def removable(shape: ShapeBursts) -> float | None:
        result = ShapesResult((shape,), steps=100)
        found = recording(tmp_path, timing=times, replay=skipped, replay_shapes=result)
        return build_profile(found).value("removable_pct")

    assert removable(few) is None
    assert removable(most) == pytest.approx(100 * 0.6 * 1.5 / 4.0)


def test_a_replay_leaves_its_own_time_and_what_is_between_the_steps(tmp_path: Path) -> None:
    """However much slower the eager steps beside it were than those of the timing pass."""
    slow = ShapesResult((ShapeBursts(LONG, 100, ((9.0,),), ((0.5,),)),), steps=100)
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 2, "steps": 3}))
    times = timing(iteration_ms=4.0, step_ms=3.6)
    found = recording(tmp_path, timing=times, replay=skipped, replay_shapes=slow)
    assert build_profile(found).value("replayed_iteration_ms") == pytest.approx(0.5 + 0.4)


def padded_to(sizes: dict[int, float], seen: tuple[int, ...]) -> ShapesResult:
    """Replays of these sizes, beside eager steps of 10 us per element."""
    eager = tuple(size / 100 for size in seen), seen
    shapes = [
        ShapeBursts((TensorShape((size,), "float32"),), 0, (eager[0],), ((ms,),), eager[1])
        for size, ms in sizes.items()
    ]
    return ShapesResult((), len(seen), padded=tuple(shapes), sizes=seen)


def test_steps_are_padded_to_the_sizes_that_take_the_least_time() -> None:
    result = padded_to({400: 2.0, 300: 1.5, 200: 0.9, 100: 0.89}, (50, 100, 150, 200, 350, 400))
    short, long = padded_replays(result)[0]
    assert (short.inputs[0].dims, long.inputs[0].dims) == ((200,), (400,))
    assert (short.share_pct, long.share_pct) == pytest.approx((50.0, 100 / 3))
    # Steps of 50 stay eager, which takes 0.5 ms.
    assert (short.eager_ms, short.replay_ms) == pytest.approx((1.5, 0.9))
    assert (long.eager_ms, long.replay_ms) == pytest.approx((3.75, 2.0))
    padding = padded_replays(result)[1]
    assert padding == pytest.approx(100 * (1 - (100 + 150 + 200 + 350 + 400) / 1400))


def test_where_no_size_is_faster_than_eager_the_largest_shows_the_loss() -> None:
    result = padded_to({400: 5.0, 200: 4.5}, (100, 200, 300, 400))
    (only,), padding = padded_replays(result)
    assert (only.inputs[0].dims, only.share_pct, only.replay_ms) == ((400,), 100.0, 5.0)
    assert only.eager_ms == pytest.approx(2.5)
    assert padding == pytest.approx(100 * (1 - 1000 / 1600))


def test_steps_larger_than_every_size_stay_eager() -> None:
    (only,), _ = padded_replays(padded_to({300: 0.5}, (100, 200, 300, 400)))
    assert only.share_pct == 75.0
    assert only.eager_ms == pytest.approx(2.0)


def test_a_recording_without_timed_steps_of_known_size_shows_no_padding() -> None:
    assert padded_replays(ShapesResult((), 3, sizes=(1, 2, 3))) == ((), None)


BLOCKED = ReplayResult("blocked", Reason("ops_change_beside_blockers", {"variants": 3, "steps": 3}))


def test_padding_measured_with_recorded_results_is_a_what_if(tmp_path: Path) -> None:
    found = replace(padded_to({400: 0.5}, (100, 200, 300, 400)), stubbed=2)
    times = timing(iteration_ms=4.0, step_ms=3.6)
    recorded = recording(tmp_path, timing=times, replay=BLOCKED, replay_shapes=found)
    profile = advise(build_profile(recorded))
    assert profile.replay.status == "what_if"
    assert profile.replay.reason == Reason("blockers_stubbed", {"count": 2})
    given = verdict(profile)
    assert (given.basis, given.recommendation) == ("what_if", "adopt_after_fixes")
    (shown,) = [finding for finding in profile.findings if finding.code == "LS030"]
    assert shown.title.endswith("2 blocking operations were replaced by recorded results")
