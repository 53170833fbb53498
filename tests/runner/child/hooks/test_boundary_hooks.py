"""Steps followed by their boundaries alone: the same steps as with every event observed."""

import copy
import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from launchscope.runner.child.hooks import boundary_hooks
from launchscope.runner.child.hooks.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.hooks.hooks import NO_OBSERVER, Hooks, StepObserver
from launchscope.runner.child.step_pattern import BACKWARD, FORWARD, OPTIMIZER, Pattern, Token


def pattern(
    closing: Any,
    backwards: int = 1,
    forwards: int = 1,
    optimizers: int = 1,
    key: str = "Linear@0",
) -> Pattern:
    tokens = (
        *[Token(FORWARD, key, closing != "forward")] * forwards,
        *[Token(BACKWARD, BACKWARD)] * backwards,
        *[Token(OPTIMIZER, "SGD@0")] * optimizers,
    )
    return Pattern(tokens, closing)


def idle(hooks: Hooks, key: str = "Linear@0") -> StepBoundaryHooks:
    """Boundary hooks that call nothing."""
    step = pattern("optimizer", key=key)
    nothing: Callable[[], None] = lambda: None  # noqa: E731
    calls = nothing, nothing, nothing, nothing, nothing
    return StepBoundaryHooks(torch, hooks.thread, step, *calls, lambda _: None)


def event_log(events: list[str]) -> Any:
    """An observer that adds the names of the events to `events`."""
    names = [name for name in vars(StepObserver) if not name.startswith("_")]
    return SimpleNamespace(**{name: lambda *_, name=name: events.append(name) for name in names})


class Followed:
    """A model whose steps are followed by their boundaries; `calls` are those of the hooks."""

    def __init__(self, step: Pattern):
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.calls: list[str] = []
        self.others: list[str] = []  # what other threads did
        self.hooks = Hooks(torch, NO_OBSERVER)
        self.hooks.install()
        self.model(torch.ones(1, 4))  # seen once, so that it has a key
        self.hooks.watch_modules(frozenset({"Linear@0"}))
        boundary = StepBoundaryHooks(
            torch,
            self.hooks.thread,
            step,
            lambda: self.calls.append("begin"),
            self._end,
            lambda: None,
            lambda: self.others.append("stepped"),
            lambda: None,
            lambda _: None,
        )
        self.ended: Callable[[], None] = lambda: None
        self.taken = self.hooks.observe_boundaries(boundary)

    def _end(self) -> None:
        self.calls.append("end")
        self.ended()

    def backward(self) -> None:
        self.model(torch.ones(1, 4)).sum().backward()


@pytest.fixture
def followed() -> Any:
    made: list[Followed] = []

    def make(step: Pattern) -> Followed:
        made.append(Followed(step))
        return made[-1]

    yield make
    for one in made:
        one.hooks.remove()


Make = Callable[[Pattern], Followed]


def test_a_training_step_runs_from_its_forward_to_its_optimizer(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    for _ in range(3):
        it.backward()
        it.optimizer.step()
    assert it.calls == ["begin", "end"] * 3


class Tagged(torch.nn.Linear):
    """Its copies share its `__dict__` entries, as torch leaves none of them out."""

    tag = "original"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def forward(self, x: torch.Tensor) -> Any:
        return self.tag


@pytest.mark.parametrize("boundaries", [True, False])
def test_a_copy_that_shares_the_entries_of_a_module_runs_its_own_forward(boundaries: bool) -> None:
    hooks, model, x = Hooks(torch, NO_OBSERVER), Tagged(4, 4), torch.ones(1, 4)
    hooks.install()
    try:
        model(x)
        copies = [copy.copy(model)]
        hooks.watch_modules(frozenset({"Tagged@0"}))
        if boundaries:
            assert hooks.observe_boundaries(idle(hooks, "Tagged@0"))
        copies.append(copy.copy(model))
        copies.append(Tagged(4, 4))
        copies[-1].__dict__ = model.__dict__.copy()
        for number, one in enumerate(copies):
            one.tag = f"copy {number}"
        for _ in range(2):
            assert [one(x) for one in copies] == ["copy 0", "copy 1", "copy 2"]
            assert model(x) == "original"
            hooks.observe_everything()
            hooks.observe_boundaries(idle(hooks, "Tagged@0"))
        copies = copies[1:]
        hooks.remove()
        assert [one(x) for one in copies] == ["copy 1", "copy 2"]
        assert model(x) == "original"
    finally:
        hooks.remove()


def test_a_module_without_copies_is_not_asked_who_it_is(
    followed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = followed(pattern("optimizer"))
    monkeypatch.setattr(boundary_hooks, "call_of_copy", None)
    for _ in range(40):  # also once Python has specialized the instructions
        it.backward()
        it.optimizer.step()
    assert it.calls == ["begin", "end"] * 40


def test_evaluation_between_steps_is_no_step(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.backward()
    it.optimizer.step()
    with torch.no_grad():
        it.model(torch.ones(1, 4))
    assert it.calls == ["begin", "end"]


def test_evaluation_with_gradients_between_steps_is_no_step(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    for _ in range(2):
        it.backward()
        it.optimizer.step()
        it.model.eval()(torch.ones(1, 4)).sum().item()
        it.model.train()
    assert it.calls == ["begin", "end"] * 2


def test_training_that_goes_on_in_evaluation_mode_costs_one_step(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.model.eval()
    for _ in range(3):
        it.backward()
        it.optimizer.step()
    assert it.calls == ["begin", "end"] * 2


def test_accumulated_gradients_are_one_step(followed: Make) -> None:
    it = followed(pattern("optimizer", forwards=2, backwards=2))
    for _ in range(2):
        it.backward()
        it.backward()
        it.optimizer.step()
    assert it.calls == ["begin", "end"] * 2


def test_a_step_whose_optimizer_was_skipped_begins_again(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.backward()
    it.backward()
    it.optimizer.step()
    assert it.calls == ["begin", "begin", "end"]


def test_a_forward_run_again_by_the_backward_begins_nothing(followed: Make) -> None:
    from torch.utils.checkpoint import checkpoint

    it = followed(pattern("optimizer"))
    loss: Any = checkpoint(it.model, torch.ones(1, 4, requires_grad=True), use_reentrant=False)
    loss.sum().backward()
    it.optimizer.step()
    assert it.calls == ["begin", "end"]


def test_inference_ends_with_its_forward(followed: Make) -> None:
    it = followed(pattern("forward", backwards=0, optimizers=0))
    with torch.no_grad():
        for _ in range(2):
            it.model(torch.ones(1, 4))
    assert it.calls == ["begin", "end"] * 2


def test_every_event_is_observed_again_afterwards(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.hooks.observe_everything()
    events: list[str] = []
    it.hooks.observer = event_log(events)
    it.backward()
    it.optimizer.step()
    assert it.calls == []
    assert events == [
        *("forward_begin", "forward_end", "backward_begin", "backward_end"),
        *("optimizer_begin", "optimizer_end"),
    ]


def test_a_copy_of_the_model_is_not_observed(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    copy.deepcopy(it.model)(torch.ones(1, 4))
    assert it.calls == []


class Plain(torch.nn.Linear):
    """Copied and pickled with all that it holds, as DistributedDataParallel is."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


def test_a_copy_by_the_models_own_method_uses_its_own_weights(
    followed: Make,
) -> None:
    it = followed(pattern("optimizer"))
    model = Plain(4, 4)
    boundary = idle(it.hooks)
    restore = boundary.hook(model)
    assert restore is not None
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.nn.init.zeros_(copied.weight)
        torch.nn.init.zeros_(copied.bias)
        assert not copied(torch.ones(1, 4)).any()
    restore()
    assert "_compiled_call_impl" not in vars(model)


def test_steps_with_more_events_need_all_hooks() -> None:
    assert StepBoundaryHooks.enough_for(pattern("optimizer"))
    assert not StepBoundaryHooks.enough_for(pattern("optimizer", optimizers=2))
    assert not StepBoundaryHooks.enough_for(pattern("forward", forwards=2))
    assert not StepBoundaryHooks.enough_for(pattern("next"))


def test_a_module_that_is_not_hooked_cannot_be_followed() -> None:
    hooks = Hooks(torch, NO_OBSERVER)
    boundary = idle(hooks)
    assert not hooks.observe_boundaries(boundary)


class LookAround(torch.optim.SGD):
    """Another forward and backward in its step, and another optimizer's step: as SAM has."""

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure()
        torch.optim.SGD(self.param_groups[0]["params"], lr=0.1).step()


def test_a_script_whose_optimizer_calls_the_model_needs_all_hooks() -> None:
    hooks = Hooks(torch, NO_OBSERVER)
    hooks.install()
    try:
        model = torch.nn.Linear(4, 4)
        optimizer = LookAround(model.parameters(), lr=0.1)
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step(lambda: model(torch.ones(1, 4)).sum().backward())
        hooks.watch_modules(frozenset({"Linear@0"}))
        boundary = idle(hooks)
        assert not hooks.observe_boundaries(boundary)
    finally:
        hooks.remove()


def test_a_model_that_is_part_of_another_of_the_step_needs_all_hooks() -> None:
    hooks = Hooks(torch, NO_OBSERVER)
    hooks.install()
    try:
        part = torch.nn.Linear(4, 4)
        whole = torch.nn.Sequential(part, torch.nn.ReLU())
        (part(torch.ones(1, 4)) + whole(torch.ones(1, 4))).sum().backward()
        hooks.watch_modules(frozenset({"Linear@0", "Sequential@1"}))
        boundary = idle(hooks)
        assert not hooks.observe_boundaries(boundary)
        assert "_compiled_call_impl" in vars(part)
    finally:
        hooks.remove()


def test_a_model_that_calls_itself_begins_one_step(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    deep = it.model.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        return deep(x) if x.shape[0] == 1 else it.model(x[:1])

    it.model.forward = forward  # type: ignore[assignment]
    it.model(torch.ones(2, 4)).sum().backward()
    it.optimizer.step()
    assert it.calls == ["begin", "end"]


def test_a_step_whose_forward_failed_begins_again(followed: Make) -> None:
    it = followed(pattern("forward", backwards=0, optimizers=0))
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            it.model(torch.ones(1, 3))
        it.model(torch.ones(1, 4))
    assert it.calls == ["begin", "begin", "end"]


def test_steps_of_another_thread_are_not_observed(followed: Make) -> None:
    it = followed(pattern("optimizer"))

    def elsewhere() -> None:
        it.backward()
        it.optimizer.step()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert it.calls == []


def test_a_forward_inside_the_data_loader_begins_nothing(followed: Make) -> None:
    it = followed(pattern("optimizer"))

    class Data(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> torch.Tensor:
            found: torch.Tensor = it.model(torch.ones(1, 4))
            return found.detach()

    for batch in torch.utils.data.DataLoader(Data()):
        it.model(batch).sum().backward()
        it.optimizer.step()
    assert it.calls == ["begin", "end"] * 2


def test_backward_is_torchs_own_where_none_has_to_be_counted(followed: Make) -> None:
    own = torch.autograd.backward
    it = followed(pattern("optimizer"))
    assert torch.autograd.backward is own
    it.hooks.observe_everything()
    assert torch.autograd.backward is not own
    it.hooks.remove()
    assert torch.autograd.backward is own


def test_a_model_compiled_in_the_middle_of_the_pass_is_observed_again(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    events: list[str] = []
    it.hooks.observer = event_log(events)
    it.model.compile(backend="eager")
    it.backward()
    it.optimizer.step()
    assert events[-6:] == [
        *("forward_begin", "forward_end", "backward_begin", "backward_end"),
        *("optimizer_begin", "optimizer_end"),
    ]


def test_a_backward_that_the_script_replaced_stays(
    followed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = followed(pattern("optimizer"))

    def scripts_own(*args: Any, **kwargs: Any) -> None: ...

    monkeypatch.setattr(torch.autograd, "backward", scripts_own)
    it.hooks.observe_everything()
    assert torch.autograd.backward is scripts_own


def test_a_model_whose_call_was_replaced_needs_all_hooks() -> None:
    hooks = Hooks(torch, NO_OBSERVER)
    model = torch.nn.Linear(4, 4)
    call: Any = model._call_impl
    model._compiled_call_impl = call
    boundary = idle(hooks)
    assert boundary.hook(model) is None
    assert model._compiled_call_impl is call


def test_the_model_is_unchanged_afterwards(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.hooks.remove()
    assert "_compiled_call_impl" not in vars(it.model)
    assert not it.model._forward_pre_hooks


def test_hooks_may_change_after_an_optimizer_step_that_has_other_hooks(
    followed: Make,
) -> None:
    it = followed(pattern("optimizer"))
    steps: list[str] = []
    handle = register_optimizer_step_post_hook(lambda *_: steps.append("the script's own"))
    it.ended = it.hooks.observe_everything
    it.backward()
    it.optimizer.step()
    handle.remove()
    assert it.calls == ["begin", "end"]
    assert steps == ["the script's own"]


def test_an_optimizer_step_of_another_thread_ends_no_step_and_is_reported(followed: Make) -> None:
    it = followed(pattern("optimizer"))
    it.backward()
    other = threading.Thread(target=it.optimizer.step)
    other.start()
    other.join()
    assert (it.calls, it.others) == (["begin"], ["stepped"])
    it.optimizer.step()
    assert (it.calls, it.others) == (["begin", "end"], ["stepped"])
