"""Every sample workload, profiled without a GPU: its step is found, its structure reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.samples.sizes import SMALLER

SAMPLES = Path(__file__).parents[2] / "sample_workloads"
TRAINING = ("forward", "backward", "optimizer")
# An RNN, an attention with a mask and mixed precision consist of other operations on a GPU. Two
# samples do not have the same number in every step.
OTHER_OPS_ON_A_GPU = {"amp_gradscaler", "lstm", "variable_lengths", "data_dependent", "generate"}


@dataclass(frozen=True)
class Expected:
    """What a rehearsal must find. `blocked_at` is a piece of the line of the only blocker."""

    period: tuple[str, ...] = TRAINING
    first_line: str = "model("
    stable: bool = True
    kinds: frozenset[str] = frozenset()
    blocked_at: str | None = None


EXPECTED = {
    "amp_gradscaler": Expected(),
    "convnet": Expected(),
    "data_dependent": Expected(stable=False, blocked_at="if faint:"),
    "gan": Expected(
        ("forward", "backward", "forward", "forward", "backward", "optimizer", *TRAINING),
        first_line="discriminator(photos",
    ),
    "generate": Expected(
        ("forward",), stable=False, kinds=frozenset({"prefill", "decode"}), first_line="model("
    ),
    "handwritten_sgd": Expected(("forward", "backward")),
    "item_in_step": Expected(blocked_at="loss.item()"),
    "lstm": Expected(),
    "small_gpt": Expected(),
    "small_mlp": Expected(),
    "torch_compile": Expected(first_line="compiled("),
    "transformer_inference": Expected(("forward",)),
    "variable_lengths": Expected(stable=False),
    "wide_mlp": Expected(),
}


def rehearse(script: Path, directory: Path) -> dict[str, Any]:
    """The Profile of `launchscope profile` on a machine without a visible GPU."""
    profile = directory / "profile.json"
    steps = [] if script.stem == "generate" else ["--steps", "60", *SMALLER.get(script.stem, ())]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "launchscope",
            "profile",
            "--warmup",
            "5",
            "-o",
            str(profile),
            str(script),
            *steps,
        ],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(profile.read_text())  # type: ignore[no-any-return]


def ops_on_a_gpu(name: str) -> float:
    """The device operations of each step that an inspection on an H200 counted."""
    recording = json.loads((SAMPLES / "recordings" / name / "recording.json").read_text())
    (count,) = set(recording["inspect"]["device_ops"])
    return float(count)


def line_of(where: dict[str, Any]) -> str:
    """The text of a source line."""
    lines = (SAMPLES / Path(where["file"]).name).read_text().splitlines()
    return lines[int(where["line"]) - 1]


@pytest.mark.child
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_its_structure_is_found_without_a_gpu(name: str, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    profile = rehearse(SAMPLES / f"{name}.py", tmp_path)

    assert profile["mode"] == "rehearsal"
    assert tuple(profile["step"]["period"]) == expected.period
    assert expected.first_line in line_of(profile["step"]["source"])
    assert {kind["name"] for kind in profile["step"].get("kinds", [])} == expected.kinds
    assert profile["shapes"]["stable"] is expected.stable
    places = [line_of(blocker["where"]) for blocker in profile["blockers"]]
    if expected.blocked_at is None:
        assert places == []
    else:
        assert [expected.blocked_at in place for place in places] == [True]

    ops = profile["metrics"]["device_ops_per_step"]["value"]
    assert ops > 0
    if name not in OTHER_OPS_ON_A_GPU:
        assert ops == ops_on_a_gpu(name)
    assert profile["verdict"]["basis"] == "structural"
    timed = {k for k, m in profile["metrics"].items() if m["unit"] in {"ms", "us", "x", "%"}}
    assert [k for k in timed if profile["metrics"][k]["value"] is not None] == []


@pytest.mark.real_start
@pytest.mark.child
def test_where_torch_and_the_script_lie_changes_nothing(tmp_path: Path) -> None:
    built, folder = tmp_path / "a b'ü", tmp_path / "site-packages"
    (built / "other").mkdir(parents=True)
    folder.mkdir()
    (built / "torch").symlink_to(Path(torch.__file__).parent)
    line = "loss.backward()"
    source = (SAMPLES / "small_mlp.py").read_text().replace(line, f"loss.item(); {line}")
    path = f"import sys; sys.path.insert(0, {f'{built}/other/..'!r}); "
    script = folder / "train.py"
    script.write_text(path + source)
    profile = rehearse(script, tmp_path)
    ops = profile["metrics"]["device_ops_per_step"]["value"]
    assert ops == ops_on_a_gpu("small_mlp") == 64
    (blocker,) = profile["blockers"]
    assert "loss.item()" in source.splitlines()[blocker["where"]["line"] - 1]
    assert blocker.get("library") is None


def test_no_sample_is_left_out() -> None:
    assert {path.stem for path in SAMPLES.glob("*.py")} == set(EXPECTED)
