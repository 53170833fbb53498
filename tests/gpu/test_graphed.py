"""On a GPU every situation trains with graphs as it does without."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from launchscope.graphed import GraphedWarning, graphed
from tests.benchmarks.graphed import cost, memory
from tests.gpu.situations import check
from tests.graphed_situations import SITUATIONS

pytestmark = pytest.mark.gpu


# Of a thread whose first call to the GPU is cuBLAS's.
@pytest.mark.filterwarnings("default:Attempting to run cuBLAS")
# Of a parameter that the script has used on its own stream, in an eager call.
@pytest.mark.filterwarnings("default:The AccumulateGrad node's stream")
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_trains_as_without_graphs(name: str) -> None:
    check(name, 60)


def test_the_cost_of_a_call_is_measured() -> None:
    assert cost(10)["beyond_the_replay_us"] > 0


def test_graphs_of_several_batch_sizes_share_memory() -> None:
    shared, own = memory(4, shared=True), memory(4, shared=False)
    assert shared["reserved_mib"] < own["reserved_mib"]


class Scaled(torch.autograd.Function):
    """Scales gradients by a value that nothing but the backward reads."""

    rate = 1.0
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * Scaled.rate


def test_a_value_that_only_a_backward_reads_is_guarded() -> None:
    def run(replays: bool) -> tuple[torch.Tensor, int]:
        weight = nn.Parameter(torch.ones(64, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            Scaled.apply(x * weight).square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        call = graphed(step) if replays else step
        for number in range(30):
            Scaled.rate = 1.0 if number < 15 else 0.5
            call(torch.ones(8, 64, device="cuda"))
        return weight.detach(), call.stats.replayed if replays else 0  # type: ignore[attr-defined]

    (expected, _), (found, replayed) = run(False), run(True)
    assert torch.equal(found, expected)
    assert replayed > 20


class Counted(Scaled):
    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        Scaled.calls += 1
        return gradients[0]


def test_an_effect_of_a_backward_keeps_the_step_eager() -> None:
    weight = nn.Parameter(torch.ones(64, device="cuda"))

    @graphed
    def step(x: torch.Tensor) -> None:
        Counted.apply(x * weight).square().mean().backward()  # type: ignore[no-untyped-call]

    with pytest.warns(GraphedWarning, match="the step changes Scaled.calls"):
        _ = [step(torch.ones(8, 64, device="cuda")) for _ in range(12)]
    assert (Scaled.calls, step.stats.captured) == (12, 0)


@pytest.fixture
def searching() -> Iterator[None]:
    """cuDNN times its algorithms for each new convolution."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(torch.backends.cudnn, "benchmark", True)
        yield


@pytest.mark.usefixtures("searching")
def test_what_cudnn_has_searched_in_the_first_calls_is_known_to_the_capture() -> None:
    """It knows it in the thread of the backward alone, and a capture cannot search."""
    layers = [nn.Conv2d(3, 24, 5, 2, 1, bias=False), nn.BatchNorm2d(24), nn.Conv2d(24, 8, 3)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    @graphed
    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(10):
        step(torch.randn(16, 3, 36, 36, device="cuda"))
    assert (step.stats.captured, step.stats.replayed) == (1, 6), step.stats


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


def training(factor: UserDict[str, float], **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    @graphed(**options)
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean() * factor["value"]
        loss.backward()
        optimizer.step()
        return loss.detach()  # type: ignore[no-any-return]

    return step


def test_a_check_finds_what_no_guard_sees() -> None:
    factor = UserDict(value=1.0)
    step = training(factor)
    for _ in range(8):
        step(torch.randn(32, 64, device="cuda"))
    factor["value"] = 2.0
    with pytest.warns(GraphedWarning, match="replays after replay 1 may have been wrong"):
        _ = [step(torch.randn(32, 64, device="cuda")) for _ in range(10)]


def test_a_check_that_runs_out_of_memory_leaves_the_call_as_it_is() -> None:
    x = torch.ones(32, 64, device="cuda")
    step = training(UserDict(value=1.0), check=4)
    losses = [float(step(x)) for _ in range(7)]
    torch.cuda.set_per_process_memory_fraction(1e-6)
    try:
        losses += [float(step(x)) for _ in range(3)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert step.stats.replayed == 6
    assert all(loss == loss for loss in losses)


def test_a_closure_that_is_called_once_is_in_the_graph() -> None:
    model = nn.Linear(8, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @graphed
    def step(x: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()  # type: ignore[no-any-return]

    losses = [float(step(torch.ones(4, 8, device="cuda"))) for _ in range(20)]
    assert step.stats.replayed > 10
    assert losses == sorted(losses, reverse=True)
