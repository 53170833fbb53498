"""On a GPU every situation trains with graphs as it does without."""

from __future__ import annotations

import pytest
import torch

from launchscope.graph_step import GraphedWarning, graphed
from tests.benchmarks.graphed import COSTS, cost, situation
from tests.graphed_situations import SITUATIONS

pytestmark = pytest.mark.gpu


# Of a thread whose first call to the GPU is cuBLAS's.
@pytest.mark.filterwarnings("default:Attempting to run cuBLAS")
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_trains_as_without_graphs(name: str) -> None:
    result = situation(name, 60)
    assert result["as_announced"] == [True, True], result["stats"]
    exact = result["against_eager"]["equal"] or result["against_form"].get("equal")
    noise = result["eager_against_eager"]["weights"]
    assert exact or result["against_eager"]["weights"] <= 10 * noise, result


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_a_call_is_measured(name: str) -> None:
    assert cost(COSTS[name])["beyond_the_replay_us"] > 0


def test_memory_that_is_needed_elsewhere_comes_from_the_graphs() -> None:
    """The second kind of call has room only without the graph of the first."""
    torch.cuda.empty_cache()
    rows = (
        torch.cuda.mem_get_info()[0] // 4 // 1024 // 4
    )  # each call holds two tensors of a quarter

    @graphed
    def spread(x: torch.Tensor) -> torch.Tensor:
        return (x.expand(-1, 1024) * 2 + 1).sum(1)

    for _ in range(4):
        small = spread(torch.ones(rows, 1, device="cuda"))
    assert spread.stats.captured == 1
    with pytest.warns(GraphedWarning, match="no room"):
        large = spread(torch.ones(rows * 8 // 5, 1, device="cuda"))
    assert small.unique().tolist() == large.unique().tolist() == [3.0 * 1024]


# Inductor warns of torch's own deprecations, and that TF32 is off.
@pytest.mark.filterwarnings("default")
def test_a_graph_lives_on_beside_a_model_that_is_compiled_to_graphs() -> None:
    """Inductor's graphs clear the scratch memory of cuBLAS, which frees what no graph owns."""
    linear = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Dropout(0.0)).cuda()
    x = torch.randn(64, 256, device="cuda")

    @graphed
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return linear(x).sum()  # type: ignore[no-any-return]

    wanted = float(step(x))
    for _ in range(5):
        step(x)
    assert step.stats.replayed
    model = torch.nn.Linear(256, 256).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()  # what other tests compiled may be under way
        model.zero_grad()  # a gradient is an output of Inductor's graph, which runs again
        compiled(x).sum().backward()
    torch.cuda.empty_cache()
    torch.full((1 << 28,), float("nan"), device="cuda")
    for _ in range(5):
        assert float(step(x)) == wanted
