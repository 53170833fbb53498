"""A twin holds what the recipe for its original says, line by line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launchscope.api import load
from launchscope.rules import recipe
from tests.benchmarks import bench
from tests.benchmarks.twins.__main__ import TWINS

SHORT = ("--warmup", "3", "--inspect", "1")


def lines_of(code: str) -> set[str]:
    return {line.split("#")[0].strip() for line in code.splitlines()} - {"", "..."}


@pytest.mark.parametrize("name", TWINS)
def test_every_line_of_the_recipe_is_in_the_twin(name: str, tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    script = bench.ROOT / "sample_workloads" / f"{name}.py"
    command = [
        sys.executable,
        "-m",
        "launchscope",
        "profile",
        "-q",
        *SHORT,
        "-o",
        str(out),
        str(script),
    ]
    environment = bench.child_environment() | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    profile = load(out)
    source = recipe.step_code(profile)
    assert source is not None
    # The width of a line is the formatter's; what a call says is not.
    twin = (bench.ROOT / "tests/benchmarks/twins" / f"{name}.py").read_text()
    wanted = lines_of(recipe.specific(profile, source))
    missing = {line for line in wanted - lines_of(twin) if "torch.cuda.graph(" not in line}
    # A twin sets what its optimizer needs where it is made.
    if any("capturable" in line for line in missing):
        assert "capturable=True)" in twin
        missing -= {"for group in optimizer.param_groups:", 'group["capturable"] = True'}
    assert missing <= {'capture_error_mode="thread_local"):'}
