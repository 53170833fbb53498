"""Every script that trains has a step, wherever that begins and however late it comes.

The goldens hold the steps of micro-batches, of an optimizer with a closure and of a marked region.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from launchscope.model import Schedule
from launchscope.runner.parent.session import RunOptions
from tests.runner.children import Batch, PointResult, recorded
from tests.unusual_scripts import SCRIPTS, script

pytestmark = pytest.mark.child

F, B, O = "forward", "backward", "optimizer"  # noqa: E741
FORCED: tuple[Any, ...] = ("forward", "optimizer", "marker")
LIMITED = RunOptions(timeout_s=60.0)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    folder = tmp_path_factory.mktemp("unusual")
    work = {
        name: partial(recorded, folder / str(number), script(name, "cpu"), options=LIMITED)
        for number, name in enumerate(SCRIPTS)
    }
    acting, soon = script("acts for ever", "cpu"), RunOptions(timeout_s=16.0)
    work["acts for ever"] = partial(recorded, folder / "ever", acting, options=soon)
    late, waits = script("acts for long before it learns", "cpu"), Schedule(wait_for="optimizer")
    work["waits"] = partial(recorded, folder / "waits", late, schedule=waits, options=LIMITED)
    never = script("acts and never learns", "cpu")
    work["waits in vain"] = partial(recorded, folder / "vain", never, schedule=waits)
    for wanted in FORCED:
        forced = script("has two kinds of steps", "cpu")
        schedule = Schedule(step_from=wanted)
        work[wanted] = partial(recorded, folder / wanted, forced, schedule=schedule)
    return Batch(work)


def notes(ran: PointResult) -> str:
    return " ".join(ran.recording.notes)


@pytest.mark.parametrize(
    ("name", "period"),
    [
        ("an ODE is solved with a throw-away module", (*[F] * 5, B, O)),
        ("an optimizer is made for each step", (F, B, O)),
        ("a class overrides the call", ("zero_grad", B, O)),
        ("layers train themselves", ("previous_end", B, O)),
        ("functions of tensors", ("zero_grad", B, O)),
        ("acts for long before it learns", (F, F, B, O)),
        ("mixes three kinds of steps", (F, B, O)),
        ("adds a term to some losses", (F, B, O)),
        ("three steps", (F, B, O)),
        ("waits", (F, F, B, O)),
        ("evaluates now and then", (F, B, O)),
        ("updates its weights by itself", (B,)),
        ("trains in a thread", (F, B, O)),
        ("marks its steps beside a thread that encodes", ("marker",)),
        ("steps its optimizers in the backward", (F, B)),
    ],
)
def test_the_step_that_trains_is_found(batch: Batch, name: str, period: tuple[str, ...]) -> None:
    ran = batch[name]
    assert ran.outcome.problem is None
    step, inspect = ran.recording.step, ran.recording.inspect
    assert step is not None
    assert step.period == period
    assert inspect is not None
    assert inspect.steps >= 1
    mark = "# starts" if period[0] in ("zero_grad", "previous_end") else "# begins"
    assert ran.line(step.source).endswith(mark)


def test_a_step_of_varying_length_is_found_after_few_of_them(batch: Batch) -> None:
    ran = batch["as many forwards as the trajectory takes"]
    step = ran.recording.step
    assert step.period[-2:] == (B, O)
    assert step.warmup_steps <= 30
    assert ran.recording.runs == 1
    assert ran.line(step.source).endswith("# begins")


@pytest.mark.parametrize("name", ["acts for long before it learns", "waits"])
def test_training_that_is_waited_for_is_measured_at_once(batch: Batch, name: str) -> None:
    assert "before the training" not in notes(batch[name])
    assert batch[name].recording.runs == 1


@pytest.mark.parametrize("name", ["acts and never learns", "acts for ever"])
def test_a_script_that_never_learns_has_its_forward_measured(batch: Batch, name: str) -> None:
    ran = batch[name]
    step = ran.recording.step
    assert (step.period, step.scope) == ((F,), "forward")
    assert ran.recording.inspect is not None
    assert "verdict is about the forward alone" in notes(ran)
    assert "waits" not in notes(ran).replace("--wait-for optimizer waits", "")


def test_who_waits_is_told_what_for(batch: Batch) -> None:
    events = batch["acts and never learns"].events
    assert any("launchscope waits for the training step" in event.text for event in events)


def test_waiting_for_an_optimizer_that_never_steps_ends_in_a_clear_sentence(batch: Batch) -> None:
    problem = batch["waits in vain"].outcome.problem
    assert "no optimizer stepped" in str(problem)
    assert "--wait-for optimizer" in str(problem.hint)


def test_of_steps_without_a_period_the_most_frequent_are_measured(batch: Batch) -> None:
    ran = batch["mixes three kinds of steps"]
    assert ran.recording.runs == 1
    assert ran.recording.step.kinds == ()
    assert ran.recording.step.names == ("Sequential", "backward", "Adam")
    assert "begin and end as most of them do" in notes(ran)
    assert len(set(ran.recording.inspect.signatures)) == 1


def test_a_forward_without_a_module_is_reported_as_missing(batch: Batch) -> None:
    assert "only from its backward on" in notes(batch["updates its weights by itself"])
    assert "only from its backward on" not in notes(batch["evaluates now and then"])


@pytest.mark.parametrize("wanted", FORCED)
def test_step_from_forces_a_choice(batch: Batch, wanted: str) -> None:
    ran = batch[wanted]
    step = ran.recording.step
    assert (step.boundary, step.period[-1]) == (wanted, wanted)
    assert wanted == "optimizer" or ran.line(step.source).endswith(f"# {wanted}")
