"""A script with its recipe pasted in does what it did before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import Profile
from tests.pasted import pasted

HEAD = """\
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = list(torch.randn(8, 5, 4))
inputs = data
"""
LOOP = """\
for x in data:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    probe()
"""


def assert_same(eager: dict[str, Any], graphed: dict[str, Any], *names: str) -> None:
    for name in names:
        torch.testing.assert_close(graphed[name], eager[name])
    for ours, theirs in zip(
        graphed["model"].parameters(), eager["model"].parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_plain_training_loop_trains_the_same(tmp_path: Path) -> None:
    eager, graphed, _ = pasted(HEAD, LOOP, tmp_path)
    assert_same(eager, graphed, "loss")


def test_the_stand_in_freezes_what_a_graph_freezes(tmp_path: Path) -> None:
    slower = "optimizer.param_groups[0]['lr'] *= 0.5"
    loop = LOOP.replace("probe()", f"probe()\n    {slower}")
    eager, graphed, _ = pasted(HEAD, loop, tmp_path, rest=slower)
    assert eager["optimizer"].param_groups[0]["lr"] == graphed["optimizer"].param_groups[0]["lr"]
    with pytest.raises(AssertionError):
        assert_same(eager, graphed)


TAKES_BATCH = """\
import collections, copy, dataclasses, types
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 1)
    def forward(self, batch):
        return (super().forward(batch.x) - batch.y).square().mean() * batch.weight
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
xs, ys = list(torch.randn(8, 5, 4)), list(torch.randn(8, 5, 1))
"""
KINDS = {
    "namedtuple": "Batch = collections.namedtuple('Batch', 'x y weight')\n",
    "dataclass": "@dataclasses.dataclass\nclass Batch:\n    x: object\n    y: object\n"
    "    weight: float\n",
    "frozen dataclass": "@dataclasses.dataclass(frozen=True)\nclass Batch:\n    x: object\n"
    "    y: object\n    weight: float\n",
    "dataclass that computes": "@dataclasses.dataclass\nclass Batch:\n    x: object\n"
    "    y: object\n    weight: float\n    def __post_init__(self):\n        self.y = self.y + 0\n",
    "object": "class Batch:\n    def __init__(self, x, y, weight):\n"
    "        self.x, self.y, self.weight = x, y, weight\n    def to(self, device):\n"
    "        self.x, self.y = self.x.to(device), self.y.to(device)\n        return self\n",
    "object that keeps its parts elsewhere": """\
class Batch:
    def __init__(self, x, y, weight):
        self.__dict__['_store'] = dict(x=x, y=y, weight=weight)
    def __getattr__(self, name):
        if name.startswith('_') or name not in self._store:
            raise AttributeError(name)
        return self._store[name]
    def __setattr__(self, name, value):
        self._store[name] = value
    def __copy__(self):
        return Batch(**self._store)
    def to_dict(self):
        return dict(self._store)
    def to(self, device):
        self._store = {k: getattr(v, 'to', lambda _: v)(device) for k, v in self._store.items()}
        return self
""",
}
BATCHES = "batches = [Batch(x, y, 0.5) for x, y in zip(xs, ys)]\n"


def batch_loop(read: str, target: str = "batch", over: str = "batches") -> str:
    return LOOP.replace("for x in data", f"for {target} in {over}").replace(
        "model(x).square().mean()", f"model({read})"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_any_kind_is_adapted_once_and_copied_part_by_part(
    tmp_path: Path, kind: str
) -> None:
    head = TAKES_BATCH + KINDS[kind] + BATCHES + "inputs = [[b.x, b.y] for b in batches]\n"
    eager, graphed, code = pasted(head, batch_loop("batch"), tmp_path)
    assert_same(eager, graphed, "loss")
    assert "static_x.copy_(batch.x, non_blocking=True)" in code
    assert "    if steps_done == 0:  # batch.weight: as it is now\n        static_batch = " in code
    for ours, theirs in zip(graphed["batches"], eager["batches"], strict=True):
        torch.testing.assert_close(ours.x, theirs.x)  # the loader's own batches are left alone


def test_a_batch_that_moves_itself_to_the_device_is_copied_from_where_it_is(
    tmp_path: Path,
) -> None:
    head = TAKES_BATCH + KINDS["object"] + BATCHES + "inputs = []\n"
    eager, graphed, code = pasted(head, batch_loop("batch.to('cuda')"), tmp_path)
    assert_same(eager, graphed, "loss")
    assert "loss = model(static_batch)" in code


def test_batches_within_batches_are_written_down_as_they_are(tmp_path: Path) -> None:
    head = TAKES_BATCH.replace("forward(self, batch)", "forward(self, pair)").replace(
        "        return",
        "        batch = types.SimpleNamespace(**pair[0], y=pair[1][0])\n        return",
    )
    head += "batches = [({'x': x, 'weight': 0.5}, (y,), 'a name') for x, y in zip(xs, ys)]\n"
    eager, graphed, code = pasted(head + "inputs = [xs, ys]\n", batch_loop("batch"), tmp_path)
    assert_same(eager, graphed, "loss")
    assert "tuple([{'x': static_x, 'weight': batch[0]['weight']}, tuple([static_batch_2])" in code


def test_an_object_whose_copy_shares_its_parts_is_told_and_not_written_to(tmp_path: Path) -> None:
    kind = KINDS["object that keeps its parts elsewhere"]
    own = "        return Batch(**self._store)\n"
    shared = "        other = Batch(1, 2, 3)\n        other.__dict__.update(self.__dict__)\n"
    head = TAKES_BATCH + kind.replace(own, shared + "        return other\n") + BATCHES
    eager, _, code = pasted(head + "inputs = [xs, ys]\n", batch_loop("batch"), tmp_path)
    assert "...  # copy what the step reads of batch to fixed addresses" in code
    assert eager["batches"][-1].x is eager["xs"][-1]


def test_an_output_that_hands_an_input_on_is_no_batch(tmp_path: Path) -> None:
    head = TAKES_BATCH + KINDS["namedtuple"] + BATCHES + "inputs = [xs, ys]\n"
    head += "def made(of, batch):\n    return Batch(of, batch.y, 1)\n"
    loop = (
        batch_loop("batch")
        .replace("loss = model(batch)", "out = made(model(batch), batch)\n    loss = max(out[:1])")
        .replace("max(out[:1])", "(lambda o: o.x * 2)(out)")
    )
    eager, graphed, code = pasted(head, loop, tmp_path)
    assert_same(eager, graphed, "loss")
    assert "static_out" not in code


CONVOLUTION = """\
class Net(torch.nn.Conv2d):
    def __init__(self):
        super().__init__(3, 2, 2)
        self.seen = []
    def forward(self, x):
        self.seen.append(x.stride())
        return super().forward(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
last = torch.channels_last
"""


@pytest.mark.parametrize(
    ("made", "read", "says"),
    [
        (
            "torch.randn(2, 3, 5, 4).to(memory_format=last)",
            "x",
            "memory_format=torch.channels_last",
        ),
        ("torch.randn(2, 3, 5, 4)", "x.to('cuda', memory_format=last)", "torch.channels_last)"),
        ("torch.randn(2, 3, 5, 4).transpose(2, 3)", "x", "torch.empty_strided((2, 3, 4, 5), (60, "),
        ("torch.randn(2, 3, 5, 9)[..., ::2]", "x", "torch.empty((2, 3, 5, 5), dtype"),
        ("torch.randn(2, 3, 5, 4)", "x", 'torch.empty((2, 3, 5, 4), dtype=torch.float32, device="'),
    ],
    ids=["channels last", "made so on the way", "transposed", "with gaps", "by rows"],
)
def test_an_input_keeps_its_order_in_memory(
    tmp_path: Path, made: str, read: str, says: str
) -> None:
    head = CONVOLUTION + f"data = [{made} for _ in range(6)]\ninputs = data\n"
    loop = LOOP.replace("model(x)", f"model({read})")
    eager, graphed, code = pasted(head, loop, tmp_path)
    assert_same(eager, graphed, "loss")
    assert says in code
    assert "model(static_x)" in code
    if "::" not in made:  # a buffer without gaps is as good
        assert set(graphed["model"].seen) == set(eager["model"].seen)


def test_images_of_three_dimensions_keep_their_order_as_well(tmp_path: Path) -> None:
    head = CONVOLUTION.replace("Conv2d", "Conv3d").replace("_last", "_last_3d")
    head += "data = [torch.randn(2, 3, 5, 4, 3).to(memory_format=last) for _ in range(6)]\n"
    eager, graphed, code = pasted(head + "inputs = data\n", LOOP, tmp_path)
    assert_same(eager, graphed, "loss")
    assert "memory_format=torch.channels_last_3d)" in code


def test_what_is_told_now_and_then_is_told_of_the_same_steps(tmp_path: Path) -> None:
    loop = """\
for step, x in enumerate(data):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    total += loss.item()
    if step % 2 == 1:
        told.append(total / 2)
        kept.append(loss)
        total = 0.0
    optimizer.step()
    probe()
"""
    head = HEAD + "told, kept, total = [], [], 0.0\n"
    eager, graphed, code = pasted(head, loop, tmp_path)
    assert_same(eager, graphed, "loss", "told")
    assert len(graphed["told"]) == 4
    torch.testing.assert_close(graphed["kept"], [loss.detach() for loss in eager["kept"]])
    assert "    if step % 2 == 1:" in code


def frozen_rate(of: Profile) -> Profile:
    """As where a scheduler is at work and the replay had a float."""
    replay = replace(of.replay, changes=())
    return replace(of, replay=replay, facts=replace(of.facts, scheduler_live=True))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("SGD(model.parameters(), lr=0.1)", 'group["fused"] = True'),
        ("SGD(model.parameters(), lr=0.1, momentum=0.9)", 'group["fused"] = True'),
        ("Adam(model.parameters(), lr=0.1)", 'group["capturable"] = True'),
        ("AdamW(model.parameters(), lr=0.1)", 'group["capturable"] = True'),
        ("RMSprop(model.parameters(), lr=0.1, foreach=True)", 'group["capturable"] = True'),
    ],
)
@pytest.mark.parametrize(
    "decays", ["ExponentialLR(optimizer, 0.7)", "OneCycleLR(optimizer, 1, 9, cycle_momentum=False)"]
)
def test_a_scheduler_goes_on_through_the_replays(
    tmp_path: Path, made: str, says: str, decays: str
) -> None:
    head = HEAD.replace("SGD(model.parameters(), lr=0.1)", made)
    head += f"scheduler = torch.optim.lr_scheduler.{decays}\n"
    loop = f"{LOOP}    scheduler.step()\n"
    rest = "scheduler.step()"
    eager, graphed, code = pasted(head, loop, tmp_path, change=frozen_rate, rest=rest)
    assert_same(eager, graphed, "loss")
    assert says in code


def test_a_rate_that_the_loop_sets_is_written_into_the_tensor(tmp_path: Path) -> None:
    sets = "    for group in optimizer.param_groups:\n        group['lr'] = 0.1 / (1 + step)  # a\n"
    loop = LOOP.replace("for x in data:\n", "for step, x in enumerate(data):\n" + sets)
    eager, graphed, code = pasted(HEAD, loop, tmp_path, change=frozen_rate)
    assert_same(eager, graphed, "loss")
    assert "        group['lr'].fill_(0.1 / (1 + step))\n" in code


def test_without_the_tensor_the_rate_would_be_frozen(tmp_path: Path) -> None:
    head = HEAD + "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)\n"
    loop = f"{LOOP}    scheduler.step()\n"
    eager, graphed, _ = pasted(head, loop, tmp_path, rest="scheduler.step()")
    with pytest.raises(AssertionError):
        assert_same(eager, graphed)


def test_adam_gets_the_flag_that_its_capture_was_made_with(tmp_path: Path) -> None:
    head = HEAD.replace("SGD", "AdamW")
    eager, graphed, code = pasted(head, LOOP, tmp_path)
    assert_same(eager, graphed, "loss")
    assert 'param_groups:  # before the first step\n    group["capturable"] = True\n' in code
