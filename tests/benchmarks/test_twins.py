from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench

pytestmark = pytest.mark.child


def test_a_twin_is_timed_from_call_to_call_of_its_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\nfrom launchscope import graphed\nimport beside\n"
        "@graphed\ndef step(x):\n    return x + 1\n"
        "for _ in range(int(sys.argv[1])):\n    step(torch.zeros(2))\n"
    )
    (tmp_path / "beside.py").write_text("")
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.benchmarks.twins.timed", str(result)]
    subprocess.run(
        [*command, str(tmp_path / "train.py"), "60"],
        check=True,
        cwd=bench.ROOT,
        env=bench.child_environment(),
    )
    found = json.loads(result.read_text())
    assert found["iterations"] == 10
    assert 0 < found["iteration_ms"] < 1000
