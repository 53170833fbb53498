"""On a GPU, an NVTX tool outside the process sees the measuring passes too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.nvtx import observer

SAMPLE = Path(__file__).parents[2] / "sample_workloads" / "small_mlp.py"

pytestmark = pytest.mark.gpu


def test_every_timed_and_traced_step_is_a_range_of_its_pass(tmp_path: Path) -> None:
    library = observer.build(tmp_path)
    command = ["-m", "launchscope", "profile", "--timing", "30", "--trace", "5", str(SAMPLE)]
    seen = [r for r in observer.observe(command, library, tmp_path) if r.domain == "launchscope"]

    passes = {r.message for r in seen if r.message.startswith("pass:")}
    assert {"pass:warmup", "pass:timing", "pass:trace", "pass:inspect"} <= passes
    steps = Counter(r.message.split()[1] for r in seen if r.message.startswith("step#"))
    assert steps["timing"] == 30
    assert steps["trace"] == 6  # the first is traced and not used
