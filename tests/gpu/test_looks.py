"""A host that is slow for a while: the times of most looks count, and the report tells of it."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import ProfileScript, loop

pytestmark = pytest.mark.gpu

# About five times what the step takes by itself.
BUSY = "begun = time.perf_counter()\n    while {when} and time.perf_counter() < begun + 4e-3: pass"


def test_a_steady_machine_is_looked_at_twice(profile_script: ProfileScript) -> None:
    ran = profile_script(loop())
    looks = ran.measured.facts.looks_iteration_ms
    assert looks is not None
    assert 2 <= len(looks) <= 3  # this machine too may be slow for a while
    assert ran.metric("iteration_ms") == pytest.approx(sorted(looks)[len(looks) // 2], rel=0.2)


@pytest.mark.parametrize("when", ["step < 41", "44 < step < 75"])
def test_the_look_that_was_disturbed_is_outvoted(profile_script: ProfileScript, when: str) -> None:
    ran = profile_script(loop(between=BUSY.format(when=when)))
    facts = ran.measured.facts
    assert facts.looks_iteration_ms is not None
    assert len(facts.looks_iteration_ms) == 3
    assert max(facts.looks_iteration_ms) > 4.0
    assert ran.metric("iteration_ms") < 3.0
    (finding,) = [f for f in ran.measured.findings if f.code == "LS044"]
    assert "changed its speed" in finding.title
