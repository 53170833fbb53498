"""launchscope compare on the GPU: points, a point out of memory, and the strategies."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Comparison, Strategy
from launchscope.parser import read_saved
from tests.processes import launchscope

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_workloads"
STARVING = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
n = parser.parse_args().batch_size
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if n == 64:
    torch.cuda.set_per_process_memory_fraction(1e-3)
    model(torch.randn(40_000_000, 64, device="cuda"))
x = torch.randn(n, 64, device="cuda")
for _ in range(300):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
QUICK = ("--timing", "12", "--trace", "3", "--replay", "10", "--verify", "0")


def compared(folder: Path, script: Path, *options: str, cwd: Path = ROOT) -> Comparison:
    path = folder / "c.json"
    words = (*options, "-o", str(path), str(script))
    done = launchscope(cwd, "compare", *words, timeout=600)
    assert done.returncode == 0, done.stderr
    return read_saved(path, Comparison)


def test_a_point_out_of_memory_is_a_row_and_the_others_are_measured(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STARVING)
    made = compared(tmp_path, script, *QUICK, "--batch-sizes", "8,16,64")
    small, middle, large = made.points
    for point in (small, middle):
        assert point.value("iteration_ms")
        assert point.value("replay_ms")
        assert (point.replay_samples_per_s or 0) > (point.samples_per_s or 0)
    assert large.profile is None
    assert large.failure is not None
    assert large.failure.out_of_memory
    assert made.crossover is not None
    assert made.crossover.batch_size is None
    shapes = [p.profile.shapes.signatures[0].inputs for p in (small, middle) if p.profile]
    assert shapes[0] != shapes[1]


@pytest.fixture(scope="module")
def strategies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Strategy]:
    folder = tmp_path_factory.mktemp("strategies")
    modes = ("--modes", "eager,replay,compile,graphed")
    made = compared(folder, SAMPLES / "small_mlp.py", *QUICK[:-2], *modes)
    return {strategy.mode: strategy for strategy in made.strategies[0].tried}


def test_the_patch_of_an_unseeded_script_is_a_strategy(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    source = (SAMPLES / "small_mlp.py").read_text()
    script.write_text(source.replace("torch.manual_seed(0)", ""))
    made = compared(tmp_path, script, *QUICK, "--modes", "eager,graphed,adopt", cwd=tmp_path)
    eager, graphed, patch = made.strategies[0].tried
    assert graphed.trajectory.status == "follows"
    assert patch.failure is None
    assert patch.trajectory.status == "follows"
    assert eager.iteration_ms is not None
    assert patch.speedup is not None
    assert patch.speedup > 1


def test_every_strategy_is_timed_and_has_the_losses_of_eager(
    strategies: dict[str, Strategy],
) -> None:
    assert list(strategies) == ["eager", "replay", "compile", "graphed"]
    for mode, strategy in strategies.items():
        assert strategy.failure is None, strategy.failure
        assert strategy.iteration_ms is not None
        assert strategy.iteration_ms.value
        assert mode == "eager" or strategy.trajectory.status == "follows", strategy.trajectory


def test_a_compiled_model_is_compiled_and_runs_in_graphs(
    strategies: dict[str, Strategy],
) -> None:
    strategy = strategies["compile"]
    assert strategy.result is not None
    assert (strategy.result.graphs or 0) >= 1
    assert strategy.result.recompilations == 0
    assert (strategy.graph_share_pct or 0) > 10
    assert (strategy.setup_ms or 0) > (strategy.result.settle_ms[-1])


def test_a_graphed_model_runs_in_graphs_and_eager_does_not(
    strategies: dict[str, Strategy],
) -> None:
    assert (strategies["graphed"].graph_share_pct or 0) > 10
    assert strategies["eager"].graph_share_pct == 0
    assert (strategies["graphed"].launches_per_step or 0) < (
        strategies["eager"].launches_per_step or 0
    )
