"""The sample workloads run by themselves and know nothing of launchscope."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.sizes import SMALLER

SCRIPTS = sorted((Path(__file__).parents[2] / "sample_workloads").glob("*.py"))


@pytest.mark.child
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_to_its_end_on_the_cpu(script: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-W",
            "error::DeprecationWarning:__main__",
            str(script),
            "--steps",
            "3",
            *SMALLER.get(script.stem, ()),
        ],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("done after 3 ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_is_a_short_plain_script(script: Path) -> None:
    text = script.read_text()
    assert "launchscope" not in text
    assert 20 <= len(text.splitlines()) <= 80
    assert text.startswith('"""')


def test_every_kind_of_workload_the_readme_speaks_of_is_there() -> None:
    assert {script.stem for script in SCRIPTS} >= {
        "amp_gradscaler",
        "convnet",
        "data_dependent",
        "gan",
        "generate",
        "handwritten_sgd",
        "item_in_step",
        "lstm",
        "small_gpt",
        "small_mlp",
        "torch_compile",
        "transformer_inference",
        "variable_lengths",
        "wide_mlp",
    }
