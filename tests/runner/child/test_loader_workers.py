"""Real workers of real data loaders."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from launchscope.runner.child.loader_workers import between, worker_times_ns

pytestmark = [
    pytest.mark.child,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it"),
]


class Busy(Dataset[torch.Tensor]):
    """Items that take a little computing."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        for _ in range(20):
            torch.ones(64, 64).cumsum(0)
        return torch.zeros(1)


def test_the_time_that_workers_compute_is_theirs_alone() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert worker_times_ns() == {}
        batches = iter(DataLoader(Busy(), 4, num_workers=2))
        next(batches)
        before = worker_times_ns()
        for _ in batches:
            pass
        assert sleeper.pid not in before
        assert len(before) == 2
        workers = [worker.pid for worker in batches._workers]  # type: ignore[attr-defined]
        assert sorted(before) == sorted(workers)
    finally:
        sleeper.communicate()


def test_workers_that_compute_count_and_those_that_come_or_go_do_not() -> None:
    batches = iter(DataLoader(Busy(), 2, num_workers=2, prefetch_factor=1))
    next(batches)
    before = worker_times_ns()
    for _ in range(20):
        next(batches)
    workers, cpu_ns = between(before, worker_times_ns())
    assert workers == 2
    assert cpu_ns > 1_000_000
    assert between(before, {**before, 1: 5}) == (0, 0)
    assert between({}, before) == (0, 0)
    assert between({}, {}) == (0, 0)
