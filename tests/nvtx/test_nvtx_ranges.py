"""What an NVTX tool outside the process sees of a launchscope run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.nvtx import observer

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_workloads" / "small_mlp.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return observer.build(tmp_path_factory.mktemp("nvtx"))


def test_a_profiled_run_names_every_pass_and_step(library: Path, tmp_path: Path) -> None:
    options = ["--warmup", "10", "--inspect", "3"]
    script = [str(SAMPLE), "--steps", "60", "--width", "32", "--layers", "2"]
    command = ["-m", "launchscope", "profile", *options, *script]
    seen = [r for r in observer.observe(command, library, tmp_path) if r.domain == "launchscope"]

    passes = [r.message for r in seen if r.message.startswith("pass:")]
    assert {"pass:warmup", "pass:inspect"} <= set(passes)
    assert len(passes) == len(set(passes)), "a pass opened its range twice"

    names = [r.message for r in seen if r.message.startswith("step#")]
    assert len(names) == len(set(names)), "two steps bear the same name"
    assert {p.removeprefix("pass:") for p in passes} >= {n.split()[1] for n in names}
    per_pass = Counter(name.split()[1] for name in names)
    assert per_pass["inspect"] == 3
    assert all(r.closed for r in seen)
