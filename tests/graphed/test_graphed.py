"""What `graphed` promises around its replays; tried on an emulated CUDA graph."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy
import pytest
import torch
from torch import nn

from launchscope.graphed import GraphedError, GraphedStep, GraphedWarning, graphed
from launchscope.graphed.cuda import Gpu
from tests.graphed.emulation import EmulatedGpu, gpu

__all__ = ["gpu"]
Tensor = torch.Tensor
X = torch.ones(4, 8)


class Loop:
    """A step over a small model; `inside` runs in it."""

    def __init__(self, inside: Callable[[], Any] = lambda: None, **options: Any):
        torch.manual_seed(0)
        self.model = model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(x).square().mean()
            inside()
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step: GraphedStep[Any, Any] = graphed(**options)(step)

    def run(self, calls: int) -> list[float]:
        return [float(self.step(X)) for _ in range(calls)]


def counts(step: GraphedStep[Any, Any]) -> tuple[int, int, int]:
    return step.stats.eager, step.stats.captured, step.stats.replayed


def test_the_first_calls_are_eager_and_the_fourth_is_captured(gpu: EmulatedGpu) -> None:
    loop = Loop()
    loop.run(10)
    assert counts(loop.step) == (3, 1, 6)
    assert [reason.code for reason in loop.step.stats.reasons] == ["warmup"]


def test_a_loss_that_the_step_returns_can_still_be_differentiated(gpu: EmulatedGpu) -> None:
    def trained(wrap: Callable[..., Any]) -> Tensor:
        weight = nn.Parameter(torch.ones(8))
        forward = wrap(lambda x: (x * weight).square().sum())
        for _ in range(12):
            forward(X).backward()
        assert weight.grad is not None
        return weight.grad

    with pytest.warns(GraphedWarning, match="still needs a backward"):
        found = trained(graphed)
    assert torch.equal(found, trained(lambda function: function))


@pytest.mark.parametrize(
    "wrong", [{"warmup": -1}, {"max_graphs": 0}, {"check": -1}, {"on_difference": "no"}]
)
def test_a_setting_out_of_range_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        graphed(**wrong)


def test_outputs_keep_their_values_unless_copies_are_switched_off(gpu: EmulatedGpu) -> None:
    kept, shared = Loop(), Loop(copy_outputs=False)
    first, second = [[loop.step(X) for _ in range(8)][5:] for loop in (kept, shared)]
    assert len({float(loss) for loss in first}) == 3
    assert len({float(loss) for loss in second}) == 1


def test_it_decorates_a_method(gpu: EmulatedGpu) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.weight = torch.ones(8)

        @graphed
        def step(self, x: Tensor) -> Tensor:
            total: Tensor = (x * self.weight).sum()
            return total

    one, other = Trainer(), Trainer()
    other.weight = 2 * other.weight
    assert [float(one.step(X)) for _ in range(6)] == [32.0] * 6
    assert [float(other.step(X)) for _ in range(6)] == [64.0] * 6


def test_without_a_gpu_it_is_eager_and_says_so() -> None:
    loop = Loop()
    with pytest.warns(GraphedWarning, match="there is no CUDA device"):
        loop.run(5)
    assert counts(loop.step) == (5, 0, 0)


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch, gpu: EmulatedGpu) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_GRAPHED", "0")
    loop = Loop()
    loop.run(6)
    assert counts(loop.step) == (6, 0, 0)


def test_an_error_of_the_step_comes_through(gpu: EmulatedGpu) -> None:
    fail = Mock(side_effect=[None, None, KeyError("third call"), *[None] * 9])
    loop = Loop(lambda: fail())
    loop.run(2)
    with pytest.raises(KeyError, match="third call"):
        loop.run(1)
    loop.run(5)
    assert loop.step.stats.replayed


def test_an_interrupted_capture_is_undone(gpu: EmulatedGpu) -> None:
    once, capturing = Mock(side_effect=[KeyboardInterrupt, *[None] * 9]), gpu.capturing

    def interrupt() -> None:
        if capturing():
            once()

    loop = Loop(interrupt)
    loop.run(3)
    before = [p.detach().clone() for p in loop.model.parameters()]
    with pytest.raises(KeyboardInterrupt):
        loop.run(1)
    assert all(map(torch.equal, before, loop.model.parameters()))
    loop.run(3)
    assert loop.step.stats.captured == 1


def test_a_failed_capture_leaves_everything_as_it_was(gpu: EmulatedGpu) -> None:
    loop, eager = Loop(), Loop(warmup=100)
    torch.manual_seed(1)
    expected = eager.run(8)
    torch.manual_seed(1)
    gpu.fail_at = 4
    with pytest.warns(GraphedWarning, match="the capture failed: RuntimeError: no luck"):
        assert loop.run(8) == expected
    assert counts(loop.step) == (8, 0, 0)


def test_a_capture_without_room_gives_up_the_graphs(gpu: EmulatedGpu) -> None:
    gpu.failure, gpu.fail_at = torch.cuda.OutOfMemoryError("no memory"), 2
    loop = Loop()
    with pytest.warns(GraphedWarning, match="no room"):
        loop.run(6)
    assert (counts(loop.step), loop.step.stats.graphs) == ((6, 0, 0), 0)


def test_a_gpu_that_no_longer_works_is_an_error_that_names_the_switch(gpu: EmulatedGpu) -> None:
    gpu.fail_at, gpu.broken = 3, True
    with pytest.raises(GraphedError, match="LAUNCHSCOPE_GRAPHED=0"):
        Loop().run(6)


def test_graphs_can_be_given_up_and_made_again(gpu: EmulatedGpu) -> None:
    loop = Loop()
    loop.run(6)
    loop.step.reset()
    assert loop.step.stats.graphs == 0
    loop.run(6)
    assert loop.step.stats.graphs == 1


def test_a_replaced_model_releases_its_graph(gpu: EmulatedGpu) -> None:
    loop = Loop()
    loop.run(6)
    for _ in range(3):
        loop.model.load_state_dict(
            {k: v.clone() for k, v in loop.model.state_dict().items()}, assign=True
        )
        loop.optimizer.param_groups[0]["params"] = list(loop.model.parameters())
        loop.run(6)
    assert loop.step.stats.graphs == 1


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = [
            nn.ModuleList([nn.Linear(8, 8) for _ in range(2)]) for _ in range(2)
        ]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.first:
            x = layer(x)
        for layer in self.second:
            x = layer(x.relu())
        return x


def guarded() -> tuple[Lists, torch.optim.Optimizer, Any]:
    """A model and its optimizer under a graph, and the guard of the graph."""
    model = Lists()
    groups = [{"params": list(part.parameters())} for part in (model.first, model.second)]
    optimizer = torch.optim.AdamW(groups, fused=True)

    @graphed
    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(5):
        step(X)
    guard = step._all_kinds()[-1].guard
    assert step.stats.replayed
    assert guard.holds()
    return model, optimizer, guard


def state_of(optimizer: Any) -> Any:
    return next(iter(optimizer.state.values()))


def move_a_parameter(model: Lists, optimizer: Any) -> None:
    first, second = optimizer.param_groups
    second["params"].insert(0, first["params"].pop())


CHANGES: dict[str, Callable[[Lists, Any], object]] = {
    "a parameter in another group": move_a_parameter,
    "a layer in another list": lambda m, o: m.second.insert(0, m.first.pop(-1)),
    "fewer parameters": lambda m, o: o.param_groups[0].update(params=[*m.first.parameters()][:2]),
    "an equal count": lambda m, o: state_of(o).update(step=state_of(o)["step"].clone()),
    "an equal state": lambda m, o: o.state.update({next(iter(o.state)): dict(state_of(o))}),
    "a mean in other memory": lambda m, o: setattr(
        state_of(o)["exp_avg"], "data", state_of(o)["exp_avg"].clone()
    ),
    "a count that is no tensor": lambda m, o: state_of(o).update(step=5.0),
    "no bias": lambda m, o: setattr(m.first[0], "bias", None),
    "a first buffer": lambda m, o: m.first[0].register_buffer("scale", torch.ones(1)),
    "half precision": lambda m, o: m.half(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_graph_is_not_used_for_another_model_or_optimizer(gpu: EmulatedGpu, change: str) -> None:
    model, optimizer, guard = guarded()
    CHANGES[change](model, optimizer)
    assert not guard.holds()


@pytest.mark.parametrize(
    "name",
    [
        *(f"cuda.matmul.allow_{what}" for what in (
            "fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction",
            "fp16_accumulation")),
        *(f"cudnn.{what}" for what in ("enabled", "benchmark", "deterministic")),
        *(f"cuda.{what}_sdp" for what in ("flash", "mem_efficient", "math", "cudnn")),
    ],
)  # fmt: skip
def test_a_setting_that_chooses_kernels_is_seen(name: str) -> None:
    path, _, last = name.rpartition(".")
    owner: Any = operator.attrgetter(path)(torch.backends)
    if last == "allow_fp16_accumulation" and not hasattr(owner, last):
        pytest.skip("torch 2.7 has it")
    is_function = last.endswith("_sdp")
    before = getattr(owner, f"{last}_enabled")() if is_function else getattr(owner, last)
    change = getattr(owner, f"enable_{last}", functools.partial(setattr, owner, last))
    flags = Gpu().flags()
    try:
        change(not before)
        assert Gpu().flags() != flags
    finally:
        change(before)
    assert Gpu().flags() == flags


def test_the_most_frequent_reason_is_part_of_the_summary(gpu: EmulatedGpu) -> None:
    loop = Loop(lambda: print(end=""))
    with pytest.warns(GraphedWarning) as caught:
        loop.run(8)
    assert len(caught) == 1
    assert f"the step calls print() [{__file__}:" in str(caught[0].message)
    assert "8 eager, 0 captured, 0 replayed; the step calls print()" in str(loop.step.stats)


def test_tensors_in_a_named_tuple_are_arguments(gpu: EmulatedGpu) -> None:
    class Batch(NamedTuple):
        x: Tensor
        weight: tuple[Tensor, float]

    @graphed
    def step(batch: Batch) -> Tensor:
        return (batch.x * batch.weight[0]).sum() * batch.weight[1]

    for number in range(8):
        batch = Batch(torch.full((4,), float(number)), (torch.ones(4), 0.5))
        assert float(step(batch)) == 2.0 * number
    assert counts(step) == (3, 1, 4)


class Normalized(nn.Module):
    """Keeps the mean of its last batch, as layers do for others to look at."""

    mean: Tensor

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        before = self.mean.detach() if self.reads and hasattr(self, "mean") else 0.0
        self.mean = x.mean(0) * self.weight
        return (x - self.mean - before) * self.weight


def kept_means(model: Normalized, step: Any) -> list[Tensor]:
    return [(step(X * number), model.mean)[1] for number in range(10)]


def training_of(model: nn.Module) -> Callable[[Tensor], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def test_a_tensor_that_a_module_keeps_is_renewed_by_each_replay(gpu: EmulatedGpu) -> None:
    eager, model = Normalized(), Normalized()
    step = graphed(training_of(model))
    means = kept_means(model, step)
    assert counts(step) == (4, 1, 5)
    assert len({id(mean) for mean in means}) == 10
    for mean, expected in zip(means, kept_means(eager, training_of(eager))):
        torch.testing.assert_close(mean, expected)


def test_a_tensor_that_a_module_keeps_and_reads_is_no_graph_s(gpu: EmulatedGpu) -> None:
    model = Normalized(reads=True)
    with pytest.warns(GraphedWarning, match="mean"):
        kept_means(model, step := graphed(training_of(model)))
    assert step.stats.captured == 0


def test_a_numpy_array_keeps_a_call_eager(gpu: EmulatedGpu) -> None:
    @graphed
    def step(x: Tensor, factor: Any) -> Tensor:
        return x * float(factor[0])

    factor = numpy.ones(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(6):
            factor[0] = index
            assert float(step(X, factor).sum()) == 32.0 * index
    assert ["NumPy" in str(w.message) for w in caught] == [True]


@pytest.mark.parametrize(
    "constant",
    [
        lambda x: x.new_tensor(numpy.arange(8)),
        lambda x: torch.as_tensor([0.5] * 8, device=x.device),
        lambda x: torch.from_numpy(numpy.ones(8)),
        lambda x: x[:, [0, 3]].sum(),
    ],
    ids=["new_tensor", "as_tensor", "from_numpy", "index"],
)
def test_a_constant_that_the_step_makes_is_a_reason_with_its_line(
    gpu: EmulatedGpu, constant: Callable[[Tensor], Tensor]
) -> None:
    step = graphed(lambda x: x + constant(x))
    line = f"{__file__}:{constant.__code__.co_firstlineno}"
    with pytest.warns(GraphedWarning, match="make it once, outside of the step") as caught:
        _ = [step(X) for _ in range(5)]
    assert f"[{line}]" in str(caught[0].message)
    assert step.stats.captured == 0


def test_an_effect_in_few_calls_leaves_the_others_to_graphs(gpu: EmulatedGpu) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    modes = []

    @graphed
    def step(x: Tensor) -> Tensor:
        model.train()
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def train() -> None:
        for number in range(80):
            if number % 10 == 9:
                model.eval()
            step(X)
            modes.append(model.training)

    with pytest.warns(GraphedWarning, match="changes"):
        train()
    assert all(modes)
    assert step.stats.replayed >= 60


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _never_compiled() -> None: ...


@pytest.mark.parametrize("inside", [lambda: nn.CrossEntropyLoss()(X, X), _never_compiled])
def test_a_module_that_a_step_makes_and_drops_and_what_is_never_compiled_are_replayed(
    gpu: EmulatedGpu, inside: Callable[[], Any]
) -> None:
    loop = Loop(inside)
    loop.run(20)
    assert counts(loop.step) == (3, 1, 16)
