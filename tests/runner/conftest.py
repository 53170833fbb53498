"""Everything in this folder runs without a GPU, also where there is one, and in a process whose
torch launchscope knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from launchscope.runner.child.facts.source_lines import note_torch


@pytest.fixture(autouse=True, scope="package")
def no_gpu_and_torch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        note_torch(torch)
        yield
