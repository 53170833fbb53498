"""Marks that begin when a step was found already: the next run measures what they mark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from launchscope.model import Schedule
from tests.runner.children import SMALL_STEP, Batch, recorded

pytestmark = pytest.mark.child

HEAD = (
    SMALL_STEP
    + """
import launchscope
def unmarked(count):
    for i in range(count): step()

def marked(count):
    for i in range(count):
        with launchscope.step():  # begins
            step()
            step()
"""
)
MARKED = "it began to mark its steps after step"


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("late_marks")
    cases = {
        "in_the_inspection": ("unmarked(20); marked(45)", Schedule(inspect=25)),
        "from_the_start": ("marked(30)", Schedule()),
        "declined": ("unmarked(20); marked(30)", Schedule(step_from="optimizer")),
    }
    running = Batch(
        {
            name: partial(recorded, folder / name, HEAD + source, schedule=schedule)
            for name, (source, schedule) in cases.items()
        }
    )
    yield running
    running.close()


def test_marks_that_begin_late_are_measured_in_another_run(batch: Batch) -> None:
    ran = batch["in_the_inspection"]
    step, inspect = ran.recording.step, ran.recording.inspect
    assert ran.outcome.problem is None
    assert (step.boundary, step.period, step.warmup_steps) == ("marker", ("marker",), 10)
    assert ran.line(step.source).endswith("# begins")
    assert inspect.steps == 25
    assert set(inspect.device_ops) == set(batch["from_the_start"].recording.inspect.device_ops)
    assert MARKED in " ".join(ran.recording.notes)
    assert ran.recording.runs == 2


@pytest.mark.parametrize("name", ["from_the_start", "declined"])
def test_marks_that_are_used_or_were_declined_need_no_other_run(batch: Batch, name: str) -> None:
    assert MARKED not in " ".join(batch[name].recording.notes)
    assert batch[name].recording.runs == 1
