"""What runs between steps: in every iteration, with a period, or now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.analysis.from_recording import build_profile
from launchscope.analysis.steps.between import of_records, of_trace
from launchscope.model import (
    BetweenRecord,
    BlockerRecord,
    OpCount,
    OpRow,
    PeriodicWork,
    SourceLine,
)
from launchscope.parser import read_recording
from tests.builders import TraceBuilder, trace, work_of

LOGGING = SourceLine("train.py", 60)
EMA = OpCount("aten.lerp_", SourceLine("train.py", 50), 3)
SAMPLES = Path(__file__).parents[3] / "sample_workloads" / "recordings"


def record(*, ema: int = 3, logs: int = 0, copies: int = 1) -> BetweenRecord:
    """An iteration with an EMA and, now and then, a line that logs."""
    where = EMA.where
    ops = [OpCount("aten.lerp_", where, ema)] if ema else []
    ops += [OpCount("aten.norm", LOGGING, 2 * logs)] if logs else []
    item = BlockerRecord("aten._local_scalar_dense", "sync", LOGGING, logs)
    return BetweenRecord(tuple(ops), (item,) if logs else (), copies)


def logged_at(places: Sequence[int], observed: int) -> list[BetweenRecord]:
    return [record(logs=int(place in places)) for place in range(observed)]


def test_what_every_iteration_does_is_counted_once() -> None:
    found = of_records([record(), record(ema=4), record()], on_gpu=False)
    assert found is not None
    assert found.per_iteration == {"between_syncs": 0, "between_copies": 1, "between_ops": 3}
    assert found.steps.ops == (OpRow("aten.lerp_", 3, EMA.where),)
    (rest,) = found.steps.periodic
    assert (rest.seen, rest.observed, rest.period, rest.counts) == (1, 3, None, {"between_ops": 1})


def test_periodic_work_counts_once_its_period_was_seen_twice() -> None:
    found = of_records(logged_at(range(4, 30, 10), 30), on_gpu=False)
    assert found is not None
    counts = {"between_ops": 2, "between_syncs": 1}
    assert found.steps.periodic == (PeriodicWork(3, 30, 10, counts, (LOGGING,)),)
    assert found.per_iteration["between_ops"] == pytest.approx(3.2)
    assert found.per_iteration["between_syncs"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("places", "observed"),
    [
        ([0], 3),  # seen once
        ([2, 12], 20),  # twice: one period
        ([0, 10, 20], 25),  # three times, but from another beginning it would be two
        ([1, 4, 8], 12),  # irregular
        ([3, 4, 5], 9),  # it stopped
        ([4, 6, 8], 10),  # it began late
    ],
)
def test_work_without_a_known_period_is_shown_and_does_not_count(
    places: list[int], observed: int
) -> None:
    found = of_records(logged_at(places, observed), on_gpu=False)
    assert found is not None
    assert found.per_iteration == {"between_syncs": 0, "between_copies": 1, "between_ops": 3}
    (work,) = found.steps.periodic
    assert (work.period, work.seen, work.where) == (None, len(places), (LOGGING,))


def test_an_iteration_that_is_not_complete_hides_nothing_of_the_others() -> None:
    long = replace(record(ema=0, copies=0), complete=False)
    found = of_records([record(), long, record()], on_gpu=False)
    assert found is not None
    assert found.per_iteration == {"between_syncs": 0, "between_copies": 1, "between_ops": 3}
    assert (found.steps.observed, found.steps.periodic) == (2, ())


def test_a_recording_without_the_work_between_steps_says_nothing_of_it() -> None:
    assert of_records((), on_gpu=False) is None
    recording = read_recording(SAMPLES / "small_mlp")
    assert recording.inspect is not None
    old = replace(recording.inspect, between=())
    profile = build_profile(replace(recording, inspect=old))
    assert profile.value("between_ops") is None
    assert profile.value("between_launches") is not None  # a trace always had it


def test_the_inspection_of_a_gpu_run_leaves_copies_to_the_trace() -> None:
    found = of_records([record(logs=1)] * 3, on_gpu=True)
    assert found is not None
    assert found.per_iteration == {"between_ops": 5}
    assert [blocker.op for blocker in found.steps.blockers] == ["aten._local_scalar_dense"]


def iterations(number: int, log_every: int = 0) -> TraceBuilder:
    """Steps of one launch; between them a copy, two launches, and a log that waits."""
    made = trace()
    for index in range(number):
        made.step().launch(name="step").end()
        made.memcpy().launch(name="ema").launch(name="ema")
        if log_every and index % log_every == 0:
            made.launch(name="norm").sync()
    return made.step().launch(name="step").end()


def test_a_trace_shows_launches_copies_and_synchronizations_between_steps() -> None:
    found = of_trace(work_of(iterations(5)))
    assert found is not None
    counts = {"between_launches": 2, "between_syncs": 0, "between_copies": 1}
    assert found.per_iteration == counts
    assert {(row.name, row.count) for row in found.steps.kernels} >= {("ema", 2)}
    assert found.steps.periodic == ()


def test_a_log_that_a_short_trace_holds_once_or_twice_does_not_count() -> None:
    plain, logged = of_trace(work_of(iterations(5))), of_trace(work_of(iterations(5, 3)))
    assert plain is not None
    assert logged is not None
    assert logged.per_iteration == plain.per_iteration
    (work,) = logged.steps.periodic
    assert work.counts == {"between_launches": 1, "between_syncs": 1}


def test_one_step_alone_says_nothing_of_what_ran_before_it() -> None:
    assert of_trace(work_of(trace().step().launch().end())) is None
