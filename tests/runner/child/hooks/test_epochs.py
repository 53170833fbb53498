"""The smaller last batch of an epoch is foreseen, and no dataset is asked for its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from launchscope.model import LastBatch
from launchscope.runner.child.hooks.epochs import Epochs, is_last_batch
from tests.shapes import tensors


class Numbers(Dataset[int]):
    """250 samples; it counts who asks for that number."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 250

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(250))


class Seeded(RandomSampler):
    """As accelerate has one."""

    def __iter__(self) -> Iterator[int]:
        torch.manual_seed(0)
        yield from super().__iter__()


class Own(BatchSampler):
    """Of the script: it may do anything."""


def weighted(data: Numbers) -> DataLoader[int]:
    return DataLoader(data, 8, sampler=WeightedRandomSampler([1.0] * 250, 100))


FORESEEN: dict[str, tuple[Callable[[Numbers], DataLoader[int]], LastBatch]] = {
    "in order": (lambda data: DataLoader(data, 8), LastBatch(250, 8)),
    "shuffled": (lambda data: DataLoader(data, 8, shuffle=True), LastBatch(250, 8)),
    "seeded": (lambda data: DataLoader(data, 8, sampler=Seeded(data)), LastBatch(250, 8)),
    "some of them": (
        lambda data: DataLoader(data, 8, sampler=RandomSampler(data, num_samples=99)),
        LastBatch(99, 8),
    ),
    "more than there are": (
        lambda data: DataLoader(data, 8, sampler=RandomSampler(data, True, 333)),
        LastBatch(333, 8),
    ),
    "subset": (
        lambda data: DataLoader(data, 8, sampler=SubsetRandomSampler(range(90))),
        LastBatch(90, 8),
    ),
    "weighted": (weighted, LastBatch(100, 8)),
    "one of two ranks": (
        lambda data: DataLoader(data, 8, sampler=DistributedSampler(data, 2, 0)),
        LastBatch(125, 8),
    ),
    "a batch sampler of torch": (
        lambda data: DataLoader(
            data, batch_sampler=BatchSampler(SequentialSampler(data), 7, drop_last=False)
        ),
        LastBatch(250, 7),
    ),
}
SILENT: dict[str, Callable[[Numbers], DataLoader[Any]]] = {
    "dropped": lambda data: DataLoader(data, 8, drop_last=True),
    "no rest": lambda data: DataLoader(data, 10),
    "one batch": lambda data: DataLoader(data, 300),
    "one by one": lambda data: DataLoader(data, batch_size=None),
    "a stream": lambda data: DataLoader(Stream(), 8),
    "a batch sampler of the script": lambda data: DataLoader(
        data, batch_sampler=Own(SequentialSampler(data), 8, drop_last=False)
    ),
    "a sampler of the script": lambda data: DataLoader(data, 8, sampler=Numbers()),  # type: ignore[arg-type]
}


def last_batch_of(loader: DataLoader[Any], data: Numbers) -> LastBatch | None:
    """What is known after the first batch of an epoch and after each other one."""
    epochs, found = Epochs(), set()
    iterator = iter(loader)
    asked = data.asked
    for _ in range(3):
        next(iterator)
        before = data.asked
        epochs.fetched(iterator)
        assert data.asked == before
        found.add(epochs.last_batch)
    assert data.asked - asked <= 4  # by torch's own samplers
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("name", FORESEEN)
def test_a_smaller_last_batch_is_foreseen_from_the_first(name: str) -> None:
    make, expected = FORESEEN[name]
    data = Numbers()
    assert last_batch_of(make(data), data) == expected


@pytest.mark.parametrize("name", [n for n in SILENT if n != "one batch"])
def test_where_there_is_none_or_it_cannot_be_known_nothing_is_said(name: str) -> None:
    data = Numbers()
    assert last_batch_of(SILENT[name](data), data) is None


def test_a_single_batch_has_no_other_size() -> None:
    epochs, data = Epochs(), Numbers()
    iterator = iter(SILENT["one batch"](data))
    next(iterator)
    epochs.fetched(iterator)
    assert epochs.last_batch is None


def test_what_was_known_of_a_loader_stays_known_when_its_iterator_is_at_the_end() -> None:
    epochs, data = Epochs(), Numbers()
    loader = DataLoader(data, 100)
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
            epochs.fetched(iterator)
            assert epochs.last_batch == LastBatch(250, 100)
        assert next(iterator, None) is None
        epochs.fetched(iterator)
        assert epochs.last_batch == LastBatch(250, 100)


def test_the_last_batch_has_a_size_and_a_place() -> None:
    last = LastBatch(250, 8)
    assert (last.size, last.batches) == (2, 32)


@pytest.mark.parametrize(
    ("usual", "inputs", "expected"),
    [
        ("(8, 4) float32", "(2, 4) float32", True),
        ("(8, 4) float32, (5,) int64, (8,) int64", "(2, 4) float32, (2,) int64, (5,) int64", True),
        ("(1024,) int64", "(256,) int64", True),  # 128 positions of each sample
        ("(3, 8) float32", "(3, 2) float32", True),
        ("(8, 4) float32", "(8, 4) float32", False),
        ("(2, 4) float32", "(8, 4) float32", False),
        ("(8, 4) float32", "(3, 4) float32", False),
        ("(8, 4) float32", "(2, 4) float64", False),
        ("(8, 4) float32", "(2, 3) float32", False),
        ("(8, 4) float32", "(2, 4, 1) float32", False),
        ("(8, 4) float32", "(2, 4) float32, (2,) int64", False),
        ("", "", False),
    ],
)
def test_inputs_of_the_last_batch_differ_only_by_its_samples(
    usual: str, inputs: str, expected: bool
) -> None:
    assert is_last_batch(LastBatch(250, 8), tensors(usual), tensors(inputs)) is expected
