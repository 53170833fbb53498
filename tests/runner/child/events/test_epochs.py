"""The smaller last batch of an epoch is foreseen."""

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
    SequentialSampler,
)

from launchscope.model import LastBatch
from launchscope.runner.child.events.epochs import Epochs, is_last_batch
from tests.shapes import tensors


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 250

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(250))


class Own(BatchSampler):
    """Of the script: it may do anything."""


DATA = Numbers()
LOADERS: dict[str, tuple[Callable[[], DataLoader[Any]], LastBatch | None]] = {
    "in order": (lambda: DataLoader(DATA, 8), LastBatch(250, 8)),
    "one of two ranks": (
        lambda: DataLoader(DATA, 8, sampler=DistributedSampler(DATA, 2, 0)),
        LastBatch(125, 8),
    ),
    "a batch sampler of torch": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 7, False)),
        LastBatch(250, 7),
    ),
    "dropped": (lambda: DataLoader(DATA, 8, drop_last=True), None),
    "one batch": (lambda: DataLoader(DATA, 300), None),
    "one by one": (lambda: DataLoader(DATA, batch_size=None), None),
    "a stream": (lambda: DataLoader(Stream(), 8), None),
    "a batch sampler of the script": (
        lambda: DataLoader(DATA, batch_sampler=Own(SequentialSampler(DATA), 8, False)),
        None,
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_smaller_last_batch_is_foreseen_from_the_first(name: str) -> None:
    make, expected = LOADERS[name]
    epochs, batches = Epochs(torch), iter(make())
    for _ in zip(range(3), batches):
        epochs.fetched(batches)
        assert epochs.last_batch == expected


@pytest.mark.parametrize(
    ("usual", "inputs", "expected"),
    [
        ("(8, 4) float32, (5,) int64, (8,) int64", "(2, 4) float32, (2,) int64, (5,) int64", True),
        ("(1024,) int64", "(256,) int64", True),  # 128 positions of each sample
        ("(3, 8) float32", "(3, 2) float32", True),
        ("(8, 4) float32", "(8, 4) float32", False),
        ("(8, 4) float32", "(3, 4) float32", False),
        ("(8, 4) float32", "(2, 4) float64", False),
        ("(8, 4) float32", "(2, 4) float32, (2,) int64", False),
    ],
)
def test_inputs_of_the_last_batch_differ_only_by_its_samples(
    usual: str, inputs: str, expected: bool
) -> None:
    assert is_last_batch(LastBatch(250, 8), tensors(usual), tensors(inputs)) is expected
