"""Scripts run under each strategy, as far as that is possible on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis.comparison.strategies import trajectory
from launchscope.model import Schedule, StrategyResult
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.session import RunOptions
from tests.runner.children import recorded

pytestmark = pytest.mark.child

TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(16, 8)
for step in range(100):
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 3:
        print("loss", loss.item())
"""
INFER = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4).eval()
with torch.inference_mode():
    for step in range(100):
        y = model(torch.full((2, 4), float(step % 5)))
"""
SCHEDULE = Schedule(warmup=4, strategy=6, timing=0, trace=0, inspect=0, replay=0, verify=0)
# The hooks need no compiler: the script itself chooses another backend.
OTHER_BACKEND = """
import launchscope.runner.child.capture.strategies as strategies
strategies.COMPILE = {{"backend": "{backend}"}}
"""


def ran_under(
    folder: Path, source: str, strategy: str, backend: str | None = None
) -> StrategyResult:
    if backend is not None:
        source = OTHER_BACKEND.format(backend=backend) + source
    ran = recorded(
        folder, source, schedule=SCHEDULE, options=RunOptions(Process(stdout=2), strategy=strategy)
    )
    assert ran.outcome.problem is None
    result = ran.recording.strategy
    assert result is not None
    return result


def test_eager_records_the_loss_of_every_step_also_if_it_is_no_number(tmp_path: Path) -> None:
    lost = TRAIN.replace(".mean()", ".mean() * (float('nan') if step >= 8 else 1.0)")
    result = ran_under(tmp_path, lost, "eager")
    assert (result.status, result.of) == ("adopted", "loss")
    assert result.adopted_at == 4
    assert len(result.values) == 10
    assert len(result.settle_ms) == 6
    assert result.values[-2:] == (None, None)
    losses = [value for value in result.values if value is not None]
    assert losses == sorted(losses, reverse=True)  # it learns
    assert len(losses) == 8
    assert result.graphs is None


def test_a_script_that_sets_no_seed_gets_the_same_one_under_each_strategy(tmp_path: Path) -> None:
    source = "import random\nfrom numpy import random as numbers\n" + TRAIN.replace(
        "torch.manual_seed(0)\n", "").replace(
        ".mean()", ".mean() * (1 + random.random() + numbers.rand())")  # fmt: skip
    eager, other = (ran_under(tmp_path / name, source, "eager") for name in ("one", "other"))
    assert len(set(eager.values)) == 10
    assert eager.values == other.values


def test_a_shape_that_changes_is_counted_as_a_recompilation(tmp_path: Path) -> None:
    source = TRAIN.replace("model(x) -", "model(x[: 16 - (step > 7)]) -").replace(
        "- x.sum", "- x[: 16 - (step > 7)].sum"
    )
    compiled = ran_under(tmp_path, source, "compile", backend="aot_eager")
    assert (compiled.status, compiled.modules) == ("adopted", ("Sequential",))
    assert (compiled.graphs, compiled.recompilations, compiled.graph_breaks) == (2, 1, 0)


def test_outputs_replace_losses_if_nothing_is_trained(tmp_path: Path) -> None:
    eager = ran_under(tmp_path / "eager", INFER, "eager")
    compiled = ran_under(tmp_path / "compiled", INFER, "compile", backend="eager")
    assert eager.of == compiled.of == "output"
    # The last step is over before the output of its compiled call is seen.
    assert (len(eager.values), len(compiled.values)) == (6, 5)
    assert trajectory(eager, compiled).status == "follows"


FAILING = """
import launchscope.runner.child.capture.strategies as strategies
def broken(graph, inputs):
    raise RuntimeError("no compiler was found")
strategies.COMPILE = {"backend": broken}
"""


@pytest.mark.parametrize(
    ("source", "strategy", "code"),
    [
        (FAILING + TRAIN, "compile", "error"),
        (TRAIN.replace("optimizer =", 'model.compile(backend="eager")\noptimizer ='), "compile",
         "script_compiles"),
        (TRAIN, "graphed", "no_gpu"),
    ],
)  # fmt: skip
def test_a_strategy_that_cannot_be_applied_is_a_result_with_its_reason(
    tmp_path: Path, source: str, strategy: str, code: str
) -> None:
    result = ran_under(tmp_path, source, strategy)
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.code == code
    assert code != "error" or "no compiler was found" in str(result.reason.details["error"])
