"""Real workers of real data loaders."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from launchscope.runner.child.loader_workers import WorkerTimes, between, worker_times

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
        assert worker_times().running == {}
        batches = iter(DataLoader(Busy(), 4, num_workers=2))
        next(batches)
        before = worker_times().running
        for _ in batches:
            pass
        assert sleeper.pid not in before
        assert len(before) == 2
        workers = [worker.pid for worker in batches._workers]  # type: ignore[attr-defined]
        assert sorted(before) == sorted(workers)
    finally:
        sleeper.communicate()


def test_workers_that_compute_count() -> None:
    batches = iter(DataLoader(Busy(), 2, num_workers=2, prefetch_factor=1))
    next(batches)
    before = worker_times()
    for _ in range(20):
        next(batches)
    workers, cpu_ns = between(before, worker_times())
    assert workers == 2
    assert cpu_ns > 1_000_000


def test_workers_of_several_epochs_count_with_those_that_have_ended() -> None:
    loader = DataLoader(Busy(), 4, num_workers=2)
    batches = iter(loader)
    next(batches)
    before = worker_times()
    for _ in batches:
        pass
    for _ in range(3):
        of_all_epochs = worker_times()
        for _ in loader:
            pass
    assert between(before, of_all_epochs) == (0, 0), "between two epochs there are no workers"
    batches = iter(loader)
    next(batches)
    now = worker_times()
    workers, cpu_ns = between(before, now)
    assert not before.running.keys() & now.running.keys()
    assert workers == 2
    assert cpu_ns > 2 * sum(before.running.values()) > 0


def test_how_many_workers_there_are_has_to_stay() -> None:
    before = WorkerTimes({5: 10, 6: 10}, 100)
    assert between(before, WorkerTimes({5: 20, 6: 40}, 900)) == (2, 40)
    assert between(before, WorkerTimes({5: 20, 7: 40}, 150)) == (2, 90)
    assert between(before, WorkerTimes({5: 20, 6: 40, 7: 1}, 100)) == (0, 0)
    assert between(WorkerTimes(), before) == (0, 0)
    assert between(WorkerTimes(), WorkerTimes(ended=90)) == (0, 0)
