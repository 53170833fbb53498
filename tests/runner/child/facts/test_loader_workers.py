"""Real workers of real data loaders."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from launchscope.runner.child.facts.loader_workers import between, worker_times


class Busy(Dataset[torch.Tensor]):
    """Items that take a little computing."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        for _ in range(20):
            torch.ones(64, 64).cumsum(0)
        return torch.zeros(1)


@pytest.mark.child
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
def test_the_time_that_workers_compute_is_theirs_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as another:
        assert worker_times() == {}
        loader = DataLoader(Busy(), 4, num_workers=2)
        batches = iter(loader)
        next(batches)
        before = worker_times()
        workers = [worker.pid for worker in batches._workers]  # type: ignore[attr-defined]
        assert sorted(before) == sorted(workers)
        for _ in range(12):
            next(batches)
        count, cpu_ns = between(before, worker_times())
        assert count == 2
        assert cpu_ns > 1_000_000
        for _ in batches:
            pass
        assert between(before, worker_times()) == (0, 0), "between epochs there are no workers"
        another.kill()
