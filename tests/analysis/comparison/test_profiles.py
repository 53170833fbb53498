"""The difference of two Profiles."""

from __future__ import annotations

import pytest

from launchscope.analysis import profile_of_trace
from launchscope.analysis.comparison.profiles import difference
from launchscope.model import Profile
from launchscope.rules import advise
from tests.builders import TraceBuilder, loop_trace


def profile(kernels: dict[str, float]) -> Profile:
    def step(builder: TraceBuilder) -> None:
        for name, us in kernels.items():
            builder.work(30).launch(kernel_us=us, name=name)

    return advise(profile_of_trace(loop_trace(5, step).trace(), "t.json"))


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
