"""Where the trainers of the tests train."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.graphed.emulation import emulated


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU with emulated graphs, or a GPU."""
    threads, environment = torch.get_num_threads(), dict(os.environ)
    if request.param == "cpu":
        torch.set_num_threads(1)
        emulated(monkeypatch.setattr)
    yield request.param
    torch.set_num_threads(threads)
    if torch.distributed.is_initialized():  # a strategy over ranks has left it
        torch.distributed.destroy_process_group()
    os.environ.clear()
    os.environ.update(environment)
