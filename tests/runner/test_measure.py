"""launchscope.measure: a callable profiled in this process, and nothing left behind in it."""

from __future__ import annotations

import multiprocessing.process
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import dataloader

import launchscope
from launchscope.errors import MeasureError
from launchscope.model import Profile

pytestmark = pytest.mark.child

Step = Callable[[torch.Tensor], Any]


@pytest.fixture
def step() -> Step:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()

    return train


def patched_places() -> dict[str, Any]:
    """Everything the runner may put something of its own into, as it is now."""
    module = torch.nn.modules.module
    optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim hides its submodule
    return {
        "backward": torch.autograd.backward,
        "fetch": dataloader._BaseDataLoaderIter.__next__,
        "compile": torch.compile,
        "Module.compile": torch.nn.Module.compile,
        "Module.__call__": torch.nn.Module.__call__,
        "profile": torch.profiler.profile.__init__,
        "autograd profile": torch.autograd.profiler.profile.__init__,
        "replay": torch.cuda.CUDAGraph.replay,
        "process": multiprocessing.process.BaseProcess.start,
        "foreach of Adam": sys.modules["torch.optim.adam"]._default_to_fused_or_foreach,
        "foreach of clipping": vars(torch.nn.utils.clip_grad)["_has_foreach_support"],
        "synchronize": torch.cuda.synchronize,
        "Event": torch.cuda.Event.synchronize,
        "forward hooks": dict(module._global_forward_hooks),
        "forward pre-hooks": dict(module._global_forward_pre_hooks),
        "always called": dict(module._global_forward_hooks_always_called),
        "step hooks": dict(optimizer._global_optimizer_pre_hooks),
        "after-step hooks": dict(optimizer._global_optimizer_post_hooks),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Also after every failure."""
    before = patched_places()
    yield
    assert patched_places() == before


def test_a_callable_gives_the_profile_of_its_step(step: Step) -> None:
    profile = launchscope.measure(step, torch.randn(8, 4))
    assert isinstance(profile, Profile)
    assert profile.mode == "rehearsal"
    assert profile.target.kind == "callable"
    assert profile.step is not None
    assert profile.step.boundary == "callable"
    assert str(profile.step.source).startswith("tests/runner/test_measure.py:")
    assert (profile.value("device_ops_per_step") or 0) > 15
    assert profile.value("iteration_ms") is None
    assert profile.shapes.stable
    assert profile.verdict is not None
    assert profile.verdict.basis == "structural"


def test_blockers_have_the_line_of_the_callable(step: Step) -> None:
    def reads(batch: torch.Tensor) -> float:
        step(batch)
        return batch.sum().item()

    blockers = launchscope.measure(reads, torch.randn(8, 4)).blockers
    assert [blocker.op for blocker in blockers] == ["aten._local_scalar_dense"]
    assert str(blockers[0].where).startswith("tests/runner/test_measure.py:")
    assert blockers[0].code == "return batch.sum().item()"


@pytest.mark.parametrize("at", [1, 12])
@pytest.mark.parametrize("error", [ZeroDivisionError("at last"), KeyboardInterrupt()])
def test_what_the_callable_raises_ends_the_measurement(at: int, error: BaseException) -> None:
    calls = []

    def fails() -> None:
        calls.append(1)
        torch.ones(2).add_(1)
        if len(calls) == at:
            raise error

    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            launchscope.measure(fails)
        return
    with pytest.raises(MeasureError, match="the step raised ZeroDivisionError: at last") as raised:
        launchscope.measure(fails)
    assert raised.value.__cause__ is error
    assert raised.value.exit_code == 3


def test_what_is_no_step_is_an_error() -> None:
    with pytest.raises(MeasureError, match="TypeError"):
        launchscope.measure(3)  # type: ignore[arg-type]
