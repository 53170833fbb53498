"""Scripts that are hard to observe: TorchScript, steps that raise, batches fetched ahead."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from launchscope.runner.child.hooks.hooks import Hooks, StepObserver
from tests.runner.child.hooks.test_boundary_hooks import event_log, idle
from tests.runner.child.steps.test_detection import ADAM, HEAD, B, F, O, begins, step_of
from tests.runner.children import Batch, recorded

# A frozen model that another thread calls for the loop of the main thread.
ON_FEATURES = """
for features in iter(batches.get, None):
    loss = F.cross_entropy(net(features), y)  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ENCODER = """
import queue, threading, time
batches, encoder = queue.Queue(4), torch.nn.Linear(4, 4)
@torch.no_grad()
def encode():
    for _ in range(60):
        batches.put(encoder(x))
    batches.put(None)
threading.Thread(target=encode, daemon=True).start()
"""

SCRIPTS = {
    "torchscript": """
net = torch.jit.script(net)
opt = torch.optim.Adam(net.parameters())
for step in range(30):
    loss = F.cross_entropy(net(x), y)  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "loaded_torchscript": """
import io
file = io.BytesIO()
torch.jit.save(torch.jit.script(net), file)
file.seek(0)
net = torch.jit.load(file)
with torch.no_grad():
    for _ in range(40):
        net(x)  # begins
""",
    "takes_no_hooks": """
import types
class Linear(torch.nn.Linear):
    def __call__(self, x):
        return self._call_impl(x)
net = Linear(4, 2)
net._forward_pre_hooks = types.MappingProxyType({})
with torch.no_grad():
    for _ in range(40):
        net(x)
""",
    "step_that_raises": ADAM
    + """
class Memory:
    left = 3
def short(*args):
    Memory.left -= 1
    if Memory.left == 0:
        raise RuntimeError("out of memory")
opt.register_step_pre_hook(short)
for step in range(40):
    try:
        loss = F.cross_entropy(net(x), y)  # begins
        opt.zero_grad()
        loss.backward()
        opt.step()
    except RuntimeError:
        pass
""",
    "trains_in_a_thread": ADAM
    + """
import threading
print(net(x).shape)
def train():
    for step in range(60):
        loss = F.cross_entropy(net(x), y)  # begins
        opt.zero_grad()
        loss.backward()
        opt.step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
""",
    "encodes_in_a_thread": ADAM + ENCODER + ON_FEATURES,
    "encodes_before_there_is_an_optimizer": ENCODER.replace("60", "600").replace("(4)", "(64)")
    + "time.sleep(0.3)\n"
    + ADAM
    + ON_FEATURES,
    "encodes_for_marked_steps": ENCODER
    + """
import launchscope
for features in iter(batches.get, None):
    with launchscope.step():  # begins
        (features @ x.T).relu().sum()
""",
    "acts_in_threads": ADAM
    + """
import queue, threading, time
over, batches = threading.Event(), queue.Queue(8)
@torch.no_grad()
def act():
    while not over.is_set():
        batches.put(net(x[:2]))
for _ in range(3):
    threading.Thread(target=act, daemon=True).start()
time.sleep(0.1)
for step in range(60):
    acted = sum(batches.get().sum() for _ in range(4))
    loss = F.cross_entropy(net(x), y) + acted  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
over.set()
""",
    # The loop that would end the other thread is stopped.
    "validates_in_a_thread": ADAM
    + """
import threading, time
over = threading.Event()
@torch.no_grad()
def validate():
    while not over.is_set():
        net(x)
        time.sleep(0.001)
threading.Thread(target=validate).start()
time.sleep(0.1)
for step in range(300):
    loss = F.cross_entropy(net(x), y)  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
over.set()
""",
    "trains_in_a_pool_after_an_evaluation": ADAM
    + """
from concurrent.futures import ThreadPoolExecutor
with torch.no_grad():
    for _ in range(5):
        net(x)
def train():
    for step in range(60):
        loss = F.cross_entropy(net(x), y)  # begins
        opt.zero_grad()
        loss.backward()
        opt.step()
with ThreadPoolExecutor(2) as pool:
    pool.submit(train).result()
""",
    "sizes_tried_before_it_serves": """
with torch.no_grad():
    for size in (1, 2, 4, 8):
        net(x[:size])
    for _ in range(40):
        net(x[:4])  # begins
""",
    "steps_in_backward": """
optimizers = {p: torch.optim.Adam([p], foreach=False) for p in net.parameters()}
def steps(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(steps)
for step in range(60):
    loss = F.cross_entropy(net(x), y)  # begins
    loss.backward()
""",
    "prefetching": ADAM
    + """
import queue, threading
from torch.utils.data import DataLoader
class Batches(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.queue = queue.Queue(2)
        self.start()
    def run(self):
        for batch in DataLoader(range(40)):
            self.queue.put(batch)
        self.queue.put(None)
for _ in iter(Batches().queue.get, None):
    loss = F.cross_entropy(net(x), y)  # begins
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("observed")
    running = Batch(
        {name: partial(recorded, folder / name, HEAD + source) for name, source in SCRIPTS.items()}
    )
    yield running
    running.close()


@pytest.mark.child
@pytest.mark.parametrize(
    ("name", "period"),
    [
        ("step_that_raises", (F, B, O)),
        ("prefetching", (F, B, O)),
        ("trains_in_a_thread", (F, B, O)),
        ("encodes_in_a_thread", (F, B, O)),
        ("encodes_before_there_is_an_optimizer", (F, B, O)),
        ("encodes_for_marked_steps", ("marker",)),
        ("acts_in_threads", (F, B, O)),
        ("validates_in_a_thread", (F, B, O)),
        ("trains_in_a_pool_after_an_evaluation", (F, B, O)),
        ("steps_in_backward", (F, B)),
        ("torchscript", (F, B, O)),
        ("loaded_torchscript", (F,)),
    ],
)
def test_the_step_is_found(batch: Batch, name: str, period: object) -> None:
    assert step_of(batch[name]).period == period
    assert begins(batch[name])


@pytest.mark.child
def test_sizes_that_were_tried_once_are_no_kinds_of_step(batch: Batch) -> None:
    assert step_of(batch["sizes_tried_before_it_serves"]).kinds == ()


@pytest.mark.child
def test_a_model_that_takes_no_hooks_ends_the_measurement_and_not_the_script(batch: Batch) -> None:
    ran = batch["takes_no_hooks"]
    assert ran.outcome.problem is None
    assert ran.outcome.exit_code == 0
    assert any("failed (TypeError: " in note for note in ran.recording.notes)


def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_what_other_threads_do_meanwhile_is_not_inside_a_backward_or_an_optimizer_step() -> None:
    hooks = Hooks(torch, StepObserver())
    hooks.install()
    try:
        model, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
        loss = model(torch.ones(1, 4)).sum()
        loss.register_hook(lambda gradient: in_thread(optimizers[1].step))
        loss.backward()
        optimizers[0].register_step_pre_hook(lambda *_: in_thread(partial(other, torch.ones(1, 4))))
        optimizers[0].step()
        assert not hooks.steps_in_backward
        assert not hooks.inside_optimizers
    finally:
        hooks.remove()


class Failing(torch.optim.SGD):
    """Runs its closure, and then out of memory as often as `failures` says."""

    failures = 1

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("out of memory")


def test_after_an_optimizer_step_that_raised_everything_is_observed() -> None:
    events: list[str] = []
    hooks = Hooks(torch, event_log(events))
    hooks.install()
    try:
        model = torch.nn.Linear(4, 4)
        optimizer = Failing(model.parameters(), lr=0.1)

        def backward() -> None:
            model(torch.ones(1, 4)).sum().backward()

        for _ in range(2):
            optimizer.failures = 1
            with pytest.raises(RuntimeError):
                optimizer.step(backward)
            optimizer.step(backward)
            assert events == ["optimizer_begin", "optimizer_begin", "optimizer_end"]
            optimizer.failures = 1
            with pytest.raises(RuntimeError):
                optimizer.step(backward)
            events.clear()
            backward()
            assert events == ["forward_begin", "forward_end", "backward_begin", "backward_end"]
            events.clear()
    finally:
        hooks.remove()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_torchscript_model_is_observed_with_all_hooks_and_left_as_before() -> None:
    events: list[str] = []
    hooks = Hooks(torch, event_log(events))
    hooks.install()
    try:
        model = torch.jit.script(torch.nn.Linear(4, 4))
        model(torch.ones(1, 4))
        (key,) = (hooks.modules.key(module) for module in hooks.modules.alive())
        assert hooks.watch_modules(frozenset({key})) == {key}
        boundary = idle(hooks, key)
        assert not hooks.observe_boundaries(boundary)
        events.clear()
        model(torch.ones(1, 4))
        copy.deepcopy(model)(torch.ones(1, 4))
        assert events == ["forward_begin", "forward_end"]
    finally:
        hooks.remove()
    assert "_compiled_call_impl" not in vars(model)


def test_while_torch_compiles_global_hooks_of_the_script_keep_their_places_and_ours_are_gone() -> (
    None
):
    every = torch.nn.modules.module
    hooks = Hooks(torch, StepObserver())
    handles = [every.register_module_forward_pre_hook(lambda *_: None)]
    try:
        hooks.install()
        handles.append(every.register_module_forward_pre_hook(lambda *_: None))
        table = every._global_forward_pre_hooks
        before = list(table.items())
        assert len(before) == 3
        with hooks.within_step():
            assert list(table) == [handle.id for handle in handles]
            assert not every._global_forward_hooks
            assert not every._global_forward_hooks_always_called
            handles.append(every.register_module_forward_pre_hook(lambda *_: None))
        assert list(table.items())[:3] == before
        assert list(table)[3:] == [handles[-1].id]
        assert every._global_forward_hooks
        with hooks.within_step():
            hooks.remove()
        assert list(table) == [handle.id for handle in handles]
    finally:
        hooks.remove()
        for handle in handles:
            handle.remove()
