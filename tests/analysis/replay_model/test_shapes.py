"""The gain of graphs for the shapes that come back, weighted by how often each occurs."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import Reason, ReplayResult, ShapeBursts, ShapesResult, TensorShape
from launchscope.rules import advise
from tests.builders import recording, timing

SHORT, LONG = ((TensorShape((8, size), "float32"),) for size in (16, 64))


def test_each_shape_counts_as_often_as_it_occurs(tmp_path: Path) -> None:
    result = ShapesResult(
        (
            ShapeBursts(LONG, 20, ((4.0, 4.0),), ((3.0, 3.0),)),
            ShapeBursts(SHORT, 60, ((2.0,), (2.2,)), ((1.0,), (0.8,))),
        ),
        steps=100,
        distinct=6,
    )
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 2, "steps": 3}))
    profile = advise(
        build_profile(
            recording(
                tmp_path,
                timing=timing(iteration_ms=4.0, step_ms=3.68),
                replay=skipped,
                replay_shapes=result,
            )
        )
    )
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
    assert profile.value("projected_iteration_ms") == pytest.approx(4.0 - 0.92)
    assert profile.value("replay_ms") == pytest.approx(3.68 - 0.92)
    assert profile.value("speedup") == pytest.approx(4 / 3)
    assert profile.verdict is not None
    assert profile.verdict.basis == "measured"


@pytest.mark.parametrize(("replay_ms", "pays"), [(1.5, True), (3.5, False)])
def test_padding_to_one_size_decides_only_where_it_pays(
    tmp_path: Path, replay_ms: float, pays: bool
) -> None:
    """Several sizes may pay where one does not."""
    padded = ShapeBursts(LONG, 0, ((9.0, 2.0),), ((replay_ms,),))
    ended = Reason("error", {"kind": "RuntimeError", "error": "no capture"})
    result = ShapesResult((), steps=40, distinct=40, reason=ended, padded=padded)
    skipped = ReplayResult("skipped", Reason("ops_change", {"variants": 3, "steps": 3}))
    times = timing(iteration_ms=4.0, step_ms=3.6)
    found = recording(tmp_path, timing=times, replay=skipped, replay_shapes=result)
    profile = build_profile(found)
    assert profile.replay.padded is not None
    assert profile.replay.padded.eager_ms == pytest.approx(3.6)  # of steps of all sizes
    expected = pytest.approx(100 * (3.6 - replay_ms) / 4.0) if pays else None
    assert profile.value("removable_pct") == expected
    assert "the capture of one of the shapes failed: RuntimeError: no capture" in profile.notes
