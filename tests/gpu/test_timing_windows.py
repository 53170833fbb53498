"""A host that is slow for a while: the faster moment counts, and the report tells of the other."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import ProfileScript, loop

pytestmark = pytest.mark.gpu

# About five times what the step takes by itself.
BUSY = "begun = time.perf_counter()\n    while {when} and time.perf_counter() < begun + 4e-3: pass"


def test_a_steady_machine_is_looked_at_twice(profile_script: ProfileScript) -> None:
    ran = profile_script(loop())
    looks = ran.measured.facts.timing_window_iteration_ms
    assert looks is not None
    assert len(looks) == 2
    # This machine too may be slow for a while, and then the looks are not the same.
    slowest = min(looks) if ran.measured.facts.unsteady else max(looks)
    assert 0.9 * min(looks) < ran.metric("iteration_ms") < 1.1 * slowest


@pytest.mark.parametrize("when", ["step < 41", "step > 88"])
def test_the_moment_that_was_disturbed_does_not_count(
    profile_script: ProfileScript, when: str
) -> None:
    ran = profile_script(loop(between=BUSY.format(when=when)))
    facts = ran.measured.facts
    assert facts.timing_window_iteration_ms is not None
    assert max(facts.timing_window_iteration_ms) > 4.0
    assert ran.metric("iteration_ms") < 3.0
    removable = ran.measured.metrics["removable_pct"]
    assert removable.low is not None
    assert removable.high is not None
    assert removable.low < removable.high
    (finding,) = [f for f in ran.measured.findings if f.code == "LS044"]
    assert finding.evidence["fastest_ms"] == min(facts.timing_window_iteration_ms)
    assert finding.evidence["slowest_ms"] == max(facts.timing_window_iteration_ms)
