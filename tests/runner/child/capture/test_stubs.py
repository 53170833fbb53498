"""Results of blocking operations that are recorded in one step and returned in the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from launchscope.reason_text import reason_text
from launchscope.runner.child.capture.stubs import StubMismatchError, Stubs
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks

X, Y = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, 2.0, 4.0])
Step = Callable[[Any], Any]


@pytest.fixture
def stubs() -> Iterator[Stubs]:
    """On the CPU every tensor counts as one on the device."""
    entered = Stubs(Hooks(torch, NO_OBSERVER), lambda tensor: True)
    yield entered
    entered.leave()


def results_of(stubs: Stubs, step: Step) -> tuple[Any, Any]:
    """What `step` returns while recording, with X, and while playing, with Y."""
    stubs.record()
    recorded = step(X)
    stubs.leave()
    stubs.play()
    played = step(Y)
    stubs.leave()
    return recorded, played


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: torch.equal(x, X),
        lambda x: x.nonzero(),
        lambda x: x.masked_select(x > 0),
        lambda x: torch.unique(x),
        lambda x: torch.repeat_interleave(x.abs().long()),
    ],
    ids=["item", "if", "equal", "nonzero", "masked_select", "unique", "repeat_interleave"],
)
def test_the_recorded_result_is_returned_without_running_the_operation(
    stubs: Stubs, step: Step
) -> None:
    recorded, played = results_of(stubs, step)
    assert len(stubs.recorded) == 1
    assert torch.equal(torch.as_tensor(recorded), torch.as_tensor(played))


def selects_with_gradients(x: Any) -> Any:
    leaf = x.clone().requires_grad_()
    (leaf[leaf > 0] * 2).sum().backward()
    return leaf.grad


def assigns(x: Any) -> Any:
    kept = torch.zeros(3)
    kept[x > 0] = x.abs()[x > 0]
    return kept


@pytest.mark.parametrize(
    ("step", "recorded", "played"),
    [
        (lambda x: x[x > 0], [1.0, 3.0], [-1.0, 4.0]),
        (selects_with_gradients, [2.0, 0.0, 2.0], [2.0, 0.0, 2.0]),
        (assigns, [1.0, 0.0, 3.0], [1.0, 0.0, 4.0]),
    ],
)
def test_a_mask_selects_the_recorded_positions_of_the_new_values(
    stubs: Stubs, step: Step, recorded: list[float], played: list[float]
) -> None:
    assert [result.tolist() for result in results_of(stubs, step)] == [recorded, played]


def test_indices_on_the_host_are_copied_once_and_select_from_the_new_values() -> None:
    """The CPU stands for the host, and memory without content for the GPU."""
    stubs = Stubs(Hooks(torch, NO_OBSERVER), lambda tensor: tensor.device.type == "meta")
    rows, kept = torch.tensor([0, 2]), torch.tensor([True, False, True])

    def step(x: Any) -> Any:
        leaf = x.to("meta").requires_grad_()
        picked = leaf[rows] + leaf[kept]
        picked.sum().backward()
        return picked.shape, leaf.grad.shape

    recorded, played = results_of(stubs, step)
    assert recorded == played == ((2,), (3,))
    indices = [index for _, value in stubs.recorded for index in value]
    assert [(index.device.type, index.shape) for index in indices] == [("meta", (2,))] * 4


def test_an_operation_or_a_shape_that_was_not_recorded_is_refused(stubs: Stubs) -> None:
    stubs.record()
    X.nonzero()
    stubs.play()
    with pytest.raises(StubMismatchError) as refused:
        torch.equal(X, Y)
    assert refused.value.reason.details["op"] == "aten.equal"
    with pytest.raises(StubMismatchError) as refused:
        X[:2].nonzero()
    assert "ran nonzero() on (2,) where" in reason_text(refused.value.reason)


def test_an_operation_that_the_captured_step_leaves_out_is_skipped(stubs: Stubs) -> None:
    stubs.record()
    X.sum().item()
    expected = X.nonzero()
    stubs.play()
    assert X.nonzero().tolist() == expected.tolist()
    assert stubs.used == 1


def test_synchronizations_do_nothing_while_playing_and_count_as_left_out(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("waited"))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.tensor([len(calls)]))

    def step(x: Any) -> Any:
        torch.cuda.synchronize()
        return torch.cuda.get_rng_state()

    recorded, played = results_of(stubs, step)
    assert calls == ["waited"]
    assert torch.equal(recorded, played)
    # Otherwise a step that only waits would look like one that needs no fix.
    assert stubs.used == 2
    torch.cuda.synchronize()
    assert len(calls) == 2
