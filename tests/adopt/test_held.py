"""What a script holds is found and compared; a value of another step is noticed."""

from __future__ import annotations

import importlib.util
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from launchscope.adopt import verification
from launchscope.adopt.child.digests import Digests
from launchscope.adopt.child.held import HeldWalk
from launchscope.adopt.comparison import PrintedComparison, compare_held_of
from launchscope.adopt.held import Held, compare_held
from launchscope.adopt.marks import iterating_original, iterating_patched
from launchscope.adopt.mirror import Project
from launchscope.adopt.observation import ITERATION, HeldValue, HeldValues
from launchscope.adopt.observed_runs import ObservedRun, ObservedRuns
from launchscope.adopt.patch import Patch
from launchscope.adopt.verification import Verifier
from launchscope.model import Target

SCRIPT = """
import argparse, array, collections, contextvars, functools, io, multiprocessing, queue, random
import itertools, pathlib, threading
from decimal import Decimal
import numpy as np, torch

class Meter:
    total = 0.5
    registry = {"a": 1}
    __slots__ = ("count", "history")
    def __init__(self):
        self.count, self.history = 3, [1.0, 2.0]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.seen = 7

def outer():
    best = [0.25]
    def inner():
        return best
    return inner

def batches(n):
    position = n
    while True:
        yield position

def noted(x, seen=[]):
    return seen

meter, net, closure, source = Meter(), Net(), outer(), batches(5)
next(source)
noted.calls = 2
args = argparse.Namespace(rate=0.1)
recent = collections.deque([1, 2], maxlen=2)
bound = functools.partial(noted, 11)
generator = torch.Generator()
own = random.Random(0)
drawing = np.random.default_rng(0)
weights = np.arange(6.0)
shared = multiprocessing.Value("i", 4)
waiting = queue.SimpleQueue()
semaphore = threading.Semaphore(3)
current = contextvars.ContextVar("current")
current.set(6)
text, raw, exact = io.StringIO("a"), bytearray(b"a"), Decimal("0.1")
numbers = array.array("d", [1.0])
records = np.zeros(2, dtype=[("x", "f4")])
net.layer.weight.updates = 8
corpus = [[n, [n] * 300] for n in range(2000)]
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.hardest = 0.5
    def __len__(self):
        return 4
    def __getitem__(self, at):
        return at

loader = torch.utils.data.DataLoader(torch.utils.data.Subset(Data(), [0, 1]), 2)
net.layer.bias._average = torch.ones(2)
averaged = torch.optim.swa_utils.AveragedModel(net)
averaged.updates = 1
place, source_code = pathlib.Path("a.pt"), "__launchscope_iteration__(); x = 1"
pairs, numbered = {(1, 2)}, itertools.count()
logger = {"train": {"meters": {"loss": [0.1, 0.2]}}}
kept = {("a", 1): torch.ones(3), "loss": torch.tensor(2.0)}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer.calls = 1
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
"""
WANTED = {
    "meter.count": 3.0, "meter.history[1]": 2.0, "Meter.total": 0.5, "Meter.registry['a']": 1.0,
    "net.seen": 7.0, "closure: best[0]": 0.25, "source: position": 5.0, "noted.calls": 2.0,
    "args.rate": 0.1, "recent[0]": 1.0, "bound.args[0]": 11.0, "kept['loss']": 2.0,
    "shared": 4.0, "semaphore": 3.0, "current": 6.0, "net.layer.weight.updates": 8.0,
    "logger['train']['meters']['loss'][1]": 0.2, "optimizer.param_groups[0]['lr']": 0.1,
    "scheduler.last_epoch": 0.0,
}  # fmt: skip


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "held_script.py"
    file.write_text(SCRIPT)
    spec = importlib.util.spec_from_file_location("held_script", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["held_script"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["held_script"]


def look(module: ModuleType) -> HeldValues:
    walk = HeldWalk(torch, Digests(torch), module.net.parameters())
    walk.add_environment()
    walk.add("", vars(module))
    return walk.found(54)


def differing(module: ModuleType, change: Callable[[], object]) -> Held:
    before = look(module)
    change()
    return compare_held([[before], [before]], [look(module)], exact=True)


def test_values_are_found_through_objects_classes_closures_and_generators(
    module: ModuleType,
) -> None:
    found = look(module)
    assert not found.whole  # of the corpus the rest is left out, and of nothing else
    assert {name: found.values[name].number for name in WANTED} == WANTED
    assert found.values["kept[('a', 1)]"].digest
    assert found.values["weights"].text == "float64 tensor of (6,)"
    assert "net.layer.weight" not in found.values  # compared as a parameter
    assert "source_code" not in found.values  # which the patch changes


CHANGES: dict[str, Callable[[ModuleType], object]] = {
    "meter.history[1]": lambda m: m.meter.history.__setitem__(1, 2.5),
    "len(meter.history)": lambda m: m.meter.history.append(3.0),
    "Meter.total": lambda m: setattr(m.Meter, "total", 0.6),
    "kept[('a', 1)]": lambda m: m.kept["a", 1].add_(1e-3),
    "weights": lambda m: m.weights.__setitem__(0, 1.0),
    "generator": lambda m: torch.rand(1, generator=m.generator),
    "own": lambda m: m.own.random(),
    "drawing": lambda m: m.drawing.random(),
    "shared": lambda m: setattr(m.shared, "value", 5),
    "waiting": lambda m: m.waiting.put(1),
    "semaphore": lambda m: m.semaphore.acquire(),
    "current": lambda m: m.current.set(7),
    "text": lambda m: m.text.write("b"),
    "raw": lambda m: m.raw.append(1),
    "exact": lambda m: setattr(m, "exact", m.Decimal("0.2")),
    "numbers": lambda m: m.numbers.append(2.0),
    "records['x']": lambda m: m.records.__setitem__(0, (1.0,)),
    "net.layer.weight.updates": lambda m: setattr(m.net.layer.weight, "updates", 9),
    "loader.dataset.dataset.hardest": lambda m: setattr(m.loader.dataset.dataset, "hardest", 0.4),
    "net.layer.bias._average": lambda m: m.net.layer.bias._average.add_(1),
    "averaged.updates": lambda m: setattr(m.averaged, "updates", 2),
    "place": lambda m: setattr(m, "place", Path("b.pt")),
    "pairs": lambda m: (m.pairs.clear(), m.pairs.add((1, 3))),
    "numbered": lambda m: next(m.numbered),
    "optimizer.calls": lambda m: setattr(m.optimizer, "calls", 2),
    "os.environ['HELD']": lambda m: os.environ.update(HELD="2"),
    "logger['train']['meters']['loss'][0]": lambda m: m.logger["train"]["meters"][
        "loss"
    ].__setitem__(0, 0.0),
    "random numbers of torch": lambda m: torch.rand(1),
    "random numbers of Python": lambda m: random.random(),
    "random numbers of NumPy": lambda m: m.np.random.rand(),
    "closure: best[0]": lambda m: m.closure().__setitem__(0, 0.5),
    "optimizer.param_groups[0]['lr']": lambda m: m.optimizer.param_groups[0].update(lr=0.2),
    "len(noted.__defaults__[0])": lambda m: m.noted(0).append(1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_another_value_is_noticed_under_its_name(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELD", "1")
    found = differing(module, lambda: CHANGES[name](module)).found
    assert found is not None
    assert found.name == name


def test_how_an_optimizer_computes_is_no_difference(module: ModuleType) -> None:
    group = module.optimizer.param_groups[0]
    assert differing(module, lambda: group.update(fused=True, foreach=False)).found is None


def numbers(**values: float) -> HeldValues:
    return HeldValues(
        54, {name: HeldValue("number", float(value)) for name, value in values.items()}
    )


def test_what_two_runs_of_the_original_do_not_have_in_common_is_left_out() -> None:
    runs = [[numbers(began=17.3, steps=54, loss=0.5)], [numbers(began=19.1, steps=54, loss=0.5)]]
    assert compare_held(runs, [numbers(began=12.0, steps=54, loss=0.5)]) == Held(2)
    found = compare_held(runs, [numbers(began=12.0, steps=53, loss=0.5)]).found
    assert found is not None
    assert (found.name, found.original, found.patched) == ("steps", "54", "53")


def test_the_times_in_a_list_are_left_out_where_two_of_them_agree_by_chance() -> None:
    def stamps(scale: float, late: int = 0) -> list[HeldValues]:
        times = [1 + round(scale * at) for at in range(60)]
        texts = [HeldValue(f"'{at - late},{time:.3f}'") for at, time in enumerate(times)]
        alone = [HeldValue("number", float(time)) for time in times]
        return [
            HeldValues(
                54,
                {f"rows[{at}]": text for at, text in enumerate(texts)}
                | {f"began[{at}]": time for at, time in enumerate(alone)},
            )
        ]

    runs = [stamps(1.0), stamps(1.01)]  # half of them agree
    assert compare_held(runs, stamps(0.5), exact=True) == Held(60)
    assert compare_held(runs, stamps(0.5, late=1), exact=True).found


def test_rounding_is_no_difference_and_a_value_of_the_step_before_is_one() -> None:
    losses = {f"losses[{at}]": math.exp(-at / 40) for at in range(54)}
    rounded = {name: value * (1 + 2e-6) for name, value in losses.items()}
    other = {name: value * (1 - 3e-6) for name, value in losses.items()}
    stale = dict(zip(losses, [1.05, *losses.values()]))
    runs = [[numbers(**losses)], [numbers(**rounded)]]
    assert compare_held(runs, [numbers(**other)]).found is None
    assert compare_held(runs, [numbers(**stale)]).found
    assert compare_held([runs[0], runs[0]], [numbers(**other)], exact=True).found


def test_names_that_only_the_step_reads_may_be_stale_or_missing() -> None:
    runs = [[numbers(loss=0.5, logits=2.0, total=3.0)]] * 2
    assert compare_held(runs, [numbers(logits=9.0, total=3.0)], inner={"logits"}) == Held(1)
    assert compare_held(runs, [numbers(loss=0.5, logits=9.0, total=3.0)]).found


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("peak_mem_mb", True), ("history['mem'][0]", True), ("batch_time.avg", True),
        ("times[3]", True), ("rows[1]['sec']", True), ("self.memory[3]", False),
        ("self.time_steps[3]", False), ("memory_bank", False), ("scheduler.eta_min", False),
    ],
)  # fmt: skip
def test_a_name_says_whether_a_number_is_a_time_or_memory(name: str, left_out: bool) -> None:
    found = compare_held([[numbers(**{name: 3.0})]] * 2, [numbers(**{name: 4.0})]).found
    assert (found is None) == left_out


def test_a_text_is_compared_but_for_its_times_and_what_a_patch_changes() -> None:
    def text(seconds: float, loss: float, end: str) -> list[HeldValues]:
        value = HeldValue(f"'loss {loss} in {seconds} s, tensor(1.5{end}) [train.py:{len(end)}]'")
        return [HeldValues(54, {"line": value})]

    runs = [text(0.5, 0.25, ", grad_fn=<MulBackward0>")] * 2
    assert compare_held(runs, text(0.2, 0.25, "")) == Held(1)
    assert compare_held(runs, text(0.5, 0.27, "")).found


def test_a_slow_number_that_is_a_step_late_is_noticed() -> None:
    def looks(late: float) -> list[HeldValues]:
        made = [numbers(rate=1e-4 * (1 - (unit - late) / 20_000)) for unit in (54, 84)]
        return [replace(look, unit=unit) for look, unit in zip(made, (54, 84))]

    def kept(late: float) -> list[HeldValues]:
        rates = {f"rates[{at}]": 1e-4 * (1 - (at - late) / 20_000) for at in range(54)}
        return [replace(numbers(**rates), unit=unit) for unit in (54, 84)]

    for made in (looks, kept):
        assert compare_held([made(0)] * 2, made(1)).found
        assert compare_held([made(0)] * 2, made(0.05)).found is None


def test_memory_and_times_are_left_out_but_not_what_is_beside_them() -> None:
    runs = [[numbers(peak_memory=5.0, fps=30.0, time_step=4.0)]] * 2
    assert compare_held(runs, [numbers(peak_memory=9.0, fps=90.0, time_step=4.0)]) == Held(1)
    assert compare_held(runs, [numbers(peak_memory=9.0, fps=90.0, time_step=3.0)]).found
    other = HeldValues(54, {"self.memory[3]": HeldValue("number", 2.0)})
    assert compare_held(
        [[other]] * 2, [replace(other, values=numbers(**{"self.memory[3]": 1.0}).values)]
    ).found


def test_a_counter_is_equal_and_of_many_samples_one_may_be_classified_in_another_way() -> None:
    def looks(step: float, correct: float) -> list[HeldValues]:
        first = numbers(step=12_000.0, correct=1500.0)
        return [first, replace(numbers(step=step, correct=correct), unit=84)]

    right = [looks(12_030.0, 2333.0)] * 2
    assert compare_held(right, looks(12_030.0, 2334.0)).found is None
    assert compare_held(right, looks(12_031.0, 2333.0)).found
    assert compare_held(right, looks(12_030.0, 2380.0)).found


def test_a_slow_average_that_is_a_step_late_is_noticed() -> None:
    def looks(late: float) -> list[HeldValues]:
        made = []
        for unit in (54, 84):
            sketch = tuple(1.0 + 1e-6 * (unit - late) * (-1) ** at for at in range(32))
            value = HeldValue("float32 tensor of (9,)", None, round(unit + 1e3 * late), sketch)
            made.append(HeldValues(unit, {"average": value}))
        return made

    assert compare_held([looks(0)] * 2, looks(1)).found
    assert compare_held([looks(0)] * 2, looks(0.01)).found is None


def test_what_only_the_step_reads_hides_no_module_and_no_caller_of_its_name() -> None:
    for name in ("module losses: total", "losses(): total"):
        runs = [[numbers(**{name: 3.0})]] * 2
        assert compare_held(runs, [numbers(**{name: 4.0})], inner={"losses"}).found


@pytest.mark.parametrize(
    ("body", "inserted"),
    [
        ("for x in data:\n    y = x\n    step(y)\n", f"    {ITERATION}(); y = x\n"),
        ("for x in data:\n    if x:\n        step(x)\n", f"    {ITERATION}()\n    if x:\n"),
        ("for x in data: step(x)\n", f"for x in data: {ITERATION}(); step(x)\n"),
        ("def f(x):\n    'Trains.'\n    step(x)\n", f"    {ITERATION}(); step(x)\n"),
        ("while True:\n    @f\n    def g(): pass\n    step(g)\n", f"    {ITERATION}()\n    @f\n"),
    ],
)
def test_an_iteration_begins_with_the_first_statement(body: str, inserted: str) -> None:
    patch = Patch(Path("train.py"), b"", body.encode(), "step", 1, 1, "step")
    assert inserted in iterating_patched(patch).content.decode()


HEAD = """
import tests.adopt.emulated_gpu
import logging, pickle, torch
from tensorboardX.writer import SummaryWriter
from torch import nn
logging.basicConfig(level="INFO")
writer = SummaryWriter()
torch.manual_seed(0)
data = torch.randn(512, 8)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
registry = {}
def note(layer):
    registry["norm"] = layer.weight.detach().norm().item()
"""
STEP = """optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
LOOP = """
for i in range(64):
    x = data[8 * i : 8 * i + 8]
    {step}
    note(model)
    logging.info("step %d: norm %.5f", i, registry["norm"])
    writer.add_scalar("norm", registry["norm"], global_step=i)
    if i % 10 == 9:
        pickle.dump(registry, open("registry.pkl", "wb"))
for i in range(200):
    optimizer.step()
"""
WRITER = """
class SummaryWriter:
    def add_scalar(self, tag, value, global_step=None):
        pass
"""
GRAPHED = """
from launchscope import graphed
@graphed
def train_step(x):
    {step}    return loss.detach()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Patch, Verifier]]:
    folder = tmp_path_factory.mktemp("project")
    before = HEAD + LOOP.format(step=STEP)
    after = HEAD + GRAPHED.format(step=STEP) + LOOP.format(step="loss = train_step(x)")
    (folder / "train.py").write_text(before)
    (folder / "tensorboardX").mkdir()
    (folder / "tensorboardX" / "writer.py").write_text(WRITER)
    first = before.splitlines().index("    optimizer.zero_grad()") + 1
    patch = Patch(
        folder / "train.py", before.encode(), after.encode(), "train_step", first, first + 3, "step"
    )
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("CUDA_VISIBLE_DEVICES", "")
        changed.setattr(verification, "environment", lambda scratch: {})
        with ObservedRuns(lambda event: None) as made:
            target = Target("script", "train.py")
            base = tmp_path_factory.mktemp("s")
            verifier = Verifier(made, target, Project.of(target, folder), base, lambda text: None)
            verifier._original = iterating_original(patch, marked=False)
            yield patch, verifier


def first_difference(original: ObservedRun, patched: ObservedRun) -> str | None:
    found = compare_held_of([original, original], patched, inner={"loss"}, exact=True).found
    return None if found is None else found.name


@pytest.mark.child
def test_what_a_script_keeps_and_saves_is_compared_where_an_iteration_begins(
    runs: tuple[Patch, Verifier],
) -> None:
    patch, verifier = runs
    original = verifier.run(None)
    [held] = [rank.held for rank in original.ranks]
    assert held[0].unit == 54
    assert "file registry.pkl #5['norm']" in held[0].values
    assert held[0].values["add_scalar() #53[1]['global_step']"].number == 52
    assert first_difference(original, verifier.run(patch, 1)) is None
    stale = patch.after.replace(
        b"    loss = train_step(x)\n    note(model)", b"    note(model)\n    loss = train_step(x)"
    )
    assert stale != patch.after
    wrong = verifier.run(replace(patch, after=stale), 1)
    assert first_difference(original, wrong) == "add_scalar() #1[0][1]"
    printed = PrintedComparison(original, [original], [], exact=True, repeatable=True, last=144)
    found = printed(wrong)
    assert found.logged
    assert found.found is not None
    assert found.found.original == original.ranks[0].logged.splitlines()[0]
