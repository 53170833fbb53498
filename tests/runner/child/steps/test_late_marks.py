"""Marks that begin when a step was found already: they win, or the report says why not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from launchscope.model import Schedule
from tests.runner.children import SMALL_STEP, Batch, PointResult, recorded

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
WON = "only the marked steps were measured"
LOST = "the marks were not used"


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("late_marks")
    two_passes = Schedule(sizes=5, inspect=20)
    cases = {
        "in_the_first_pass": ("unmarked(11); marked(30)", Schedule()),
        "within_a_step": (
            "unmarked(11)\nnet(torch.randn(8, 4)).sum().backward()\nmarked(30)",
            Schedule(),
        ),
        "in_the_second_pass": ("unmarked(20); marked(30)", two_passes),
        "from_the_start": ("marked(30)", Schedule()),
        "forced": ("unmarked(20); marked(30)", Schedule(step_from="optimizer")),
    }
    running = Batch(
        {
            name: partial(recorded, folder / name, HEAD + source, schedule=schedule)
            for name, (source, schedule) in cases.items()
        }
    )
    yield running
    running.close()


def notes(ran: PointResult) -> list[str]:
    return [note for note in ran.recording.notes if WON in note or LOST in note]


@pytest.mark.parametrize("name", ["in_the_first_pass", "within_a_step"])
def test_marks_win_as_long_as_no_pass_is_over(batch: Batch, name: str) -> None:
    ran = batch[name]
    step, inspect = ran.recording.step, ran.recording.inspect
    assert ran.outcome.problem is None
    assert (step.boundary, step.period, step.warmup_steps) == ("marker", ("marker",), 10)
    assert ran.line(step.source).endswith("# begins")
    assert inspect.steps == 3
    assert inspect.device_ops == batch["from_the_start"].recording.inspect.device_ops
    (note,) = notes(ran)
    assert WON in note
    assert ran.recording.runs == 1


def test_marks_that_come_too_late_are_reported(batch: Batch) -> None:
    ran = batch["in_the_second_pass"]
    assert ran.outcome.problem is None
    assert ran.recording.step.boundary == "period"
    (note,) = notes(ran)
    assert LOST in note
    assert "--step-from marker" in note


@pytest.mark.parametrize("name", ["from_the_start", "forced"])
def test_marks_that_are_used_or_were_declined_are_not_reported(batch: Batch, name: str) -> None:
    assert notes(batch[name]) == []
