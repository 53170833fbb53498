"""Which step is found in scripts that know nothing of launchscope, run for real on the CPU.

The goldens hold that of micro-batches, of an optimizer with a closure, of a marked region, and of
kinds of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from launchscope.model import InspectResult, Schedule, StepBoundary
from tests.runner.children import Batch, PointResult, recorded

pytestmark = pytest.mark.child

F, B, O = "forward", "backward", "optimizer"  # noqa: E741

HEAD = """\
import sys, torch
import torch.nn.functional as F
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
"""
ADAM = "opt = torch.optim.Adam(net.parameters())\n"

SCRIPTS: dict[str, str] = {
    "evaluating": ADAM
    + """
def evaluate(batches):
    net.eval()
    with torch.no_grad():
        for _ in range(batches):
            net(x)
    net.train()
evaluate(100)
for step in range(60):
    if step % 7 == 3:
        evaluate(5)
    loss = F.cross_entropy(net(x), y)  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
    if loss.item() < 0:
        break
""",
    "raw_loop": """
w = torch.zeros(4, 2, requires_grad=True)
for i in range(40):
    F.cross_entropy(x @ w, y).backward()  # begins
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
""",
}
FORCED = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
import launchscope
for step in range(60):
    for part in range(2):
        loss = F.cross_entropy(net(x), y)  # forward
        loss.backward()
        opt.step()
    if step < 40:
        with launchscope.step():  # marker
            F.cross_entropy(net(x), y).backward()
    opt.step()
"""


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("detection")
    work = {
        name: partial(recorded, folder / name, HEAD + source) for name, source in SCRIPTS.items()
    }
    for wanted in ("forward", "optimizer", "marker"):
        schedule = Schedule(step_from=wanted)
        work[f"from_{wanted}"] = partial(
            recorded,
            folder / f"from_{wanted}",
            HEAD + FORCED,
            schedule=schedule,
        )
    running = Batch(work)
    yield running
    running.close()


def step_of(ran: PointResult) -> StepBoundary:
    assert ran.outcome.problem is None
    assert ran.recording.step is not None
    return ran.recording.step


def inspected(ran: PointResult) -> InspectResult:
    assert ran.recording.inspect is not None
    return ran.recording.inspect


def begins(ran: PointResult, mark: str = "begins") -> bool:
    """Whether the step begins at the line that the script marks with a comment."""
    return ran.line(step_of(ran).source).endswith(f"# {mark}")


@pytest.mark.parametrize(
    ("name", "period"),
    [
        ("evaluating", (F, B, O)),
        ("raw_loop", (B,)),
    ],
)
def test_one_period_of_the_script_is_the_step(batch: Batch, name: str, period: object) -> None:
    ran = batch[name]
    step = step_of(ran)
    events = zip(step.period, step.names)
    assert tuple(kind for kind, made in events if "Loss" not in made) == period
    assert step.boundary == "period"
    assert step.warmup_steps == 10
    assert begins(ran)
    assert inspected(ran).steps == 3
    assert len(set(inspected(ran).device_ops)) == 1
    assert ran.recording.runs == 1


def test_a_forward_without_a_module_is_reported_as_missing(batch: Batch) -> None:
    assert "only from its backward on" in " ".join(batch["raw_loop"].recording.notes)
    assert "only from its backward on" not in " ".join(batch["evaluating"].recording.notes)


@pytest.mark.parametrize("wanted", ["forward", "optimizer", "marker"])
def test_step_from_forces_a_choice(batch: Batch, wanted: str) -> None:
    ran = batch[f"from_{wanted}"]
    step = step_of(ran)
    assert step.boundary == wanted
    if wanted != "optimizer":
        assert begins(ran, wanted)
    assert step.period[-1] == wanted
