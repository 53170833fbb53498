"""A script changes the world around it: neither it nor the measurement notices the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runner.children import SMALL_STEP, Said, launchscope, python

pytestmark = pytest.mark.child

TRAIN = SMALL_STEP.replace("net =", "torch.manual_seed(0)\nnet =") + "step()\n"
LOOP = "for i in range(30): step()\nprint('weight', net.weight.sum().item())\n"
CLEARS = TRAIN + "os.environ.clear()\nsys.setrecursionlimit(150)\n" + LOOP + "sys.exit('message')\n"
LEAVES = TRAIN + "import tempfile\nos.chdir(tempfile.mkdtemp())\n" + LOOP


def both(folder: Path, source: str) -> tuple[Said, Said]:
    """What a script prints and exits with under `python` and under `launchscope --full`."""
    profiled = launchscope(folder, source, "--full")
    return python(folder, "script.py"), profiled


def elsewhere(folder: Path, source: str) -> Said:
    """Run from a folder that is its own, with a relative and an absolute output."""
    (folder / "work").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    outputs = ["-o", "relative.json", "-o", str(folder / "absolute.json")]
    script = str(folder / "script.py")
    return python(folder / "work", "-m", "launchscope", "profile", *outputs, script)


def test_a_script_that_changes_its_world_is_measured_and_does_the_same(tmp_path: Path) -> None:
    alone, profiled = both(tmp_path, CLEARS)
    assert alone.out in profiled.out, profiled.err
    assert alone.err in profiled.err
    assert "inspecting, " in profiled.err
    assert "failed" not in profiled.err
    assert profiled.code == alone.code == 1
    assert "he script ended with exit code 1" in " ".join(profiled.err.split())


def test_outputs_of_a_script_that_leaves_its_folder_go_where_they_were_meant(
    tmp_path: Path,
) -> None:
    said = elsewhere(tmp_path, LEAVES)
    assert said.code == 0, said.err
    for path in (tmp_path / "absolute.json", tmp_path / "work" / "relative.json"):
        assert json.loads(path.read_text())["step"]["source"]["file"] == str(tmp_path / "script.py")
