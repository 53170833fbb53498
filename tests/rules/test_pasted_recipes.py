"""A script with its recipe pasted in does what it did before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

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
