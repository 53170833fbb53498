"""On a GPU every situation trains with graphs as it does without."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks.graphed import COSTS, cost, situation
from tests.graphed_situations import SITUATIONS

pytestmark = pytest.mark.gpu


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
    from launchscope.graph_step import GraphedWarning, graphed

    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    rows = free // 4 // 3 // 1024

    @graphed
    def spread(x: torch.Tensor) -> torch.Tensor:
        return (x.expand(-1, 1024) * 2 + 1).sum(1)

    torch.cuda.set_per_process_memory_fraction(1.0)
    try:
        for _ in range(4):
            small = spread(torch.ones(rows, 1, device="cuda"))
        assert spread.stats.captured == 1
        with pytest.warns(GraphedWarning, match="no room"):
            large = spread(torch.ones(2 * rows, 1, device="cuda"))
    finally:
        torch.cuda.empty_cache()
    assert float(small.mean()) == float(large.mean()) == 3 * 1024
