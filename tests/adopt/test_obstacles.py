"""A step that would stay eager whatever is moved is refused before the patch runs."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.adopt.obstacles import obstacle
from launchscope.adopt.patch import Patch, rewrite
from launchscope.model import BlockerRecord, Recording, SourceLine
from launchscope.parser import read_recording
from tests.adopt.loops import SETUP
from tests.adopt.running import observed

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
SCRIPT = (
    SETUP
    + """\
def scaled(out):
    largest = out.abs().max().item()
    return out / largest


def report(loss):
    print(f"{loss.item():.5f}")


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(scaled(model(x)), y)
    loss.backward()
    optimizer.step()
    report(loss)
"""
)
LINES = {text.strip(): number for number, text in enumerate(SCRIPT.splitlines(), 1)}
INSIDE, BEHIND = "largest = out.abs().max().item()", 'print(f"{loss.item():.5f}")'


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(RECORDINGS / "gan")


def patched(folder: Path, script: str = SCRIPT) -> Patch:
    file = folder / "train.py"
    file.write_text(script)
    _, _, places = observed(script.encode(), file)
    made = rewrite(places, Path.read_bytes)
    assert isinstance(made, Patch)
    return made


def reads(recording: Recording, code: str, **changes: object) -> Recording:
    where = SourceLine("train.py", LINES[code])
    record = BlockerRecord("aten._local_scalar_dense", "sync", where, 1, code, by_step=(1, 1, 1))
    assert recording.inspect is not None
    inspected = replace(recording.inspect, blockers=(replace(record, **changes),))  # type: ignore[arg-type]
    return replace(recording, inspect=inspected)


def test_a_value_read_in_a_function_that_the_step_calls_is_named(
    recording: Recording, tmp_path: Path
) -> None:
    found = obstacle(reads(recording, INSIDE), patched(tmp_path), tmp_path, tmp_path)
    assert found is not None
    assert (found.reason, found.line, found.name) == ("read_inside", LINES[INSIDE], INSIDE)


@pytest.mark.parametrize(
    "changes",
    [{"by_step": (1, 0, 1)}, {"by_step": ()}, {"inside": "optimizer"}, {"category": "host_copy"}],
    ids=["not in each step", "unknown", "in the optimizer", "a copy"],
)
def test_what_need_not_stop_a_graph_is_tried(
    recording: Recording, tmp_path: Path, changes: dict[str, object]
) -> None:
    assert (
        obstacle(reads(recording, INSIDE, **changes), patched(tmp_path), tmp_path, tmp_path) is None
    )


def test_a_value_read_in_a_function_that_moves_behind_the_step_is_no_obstacle(
    recording: Recording, tmp_path: Path
) -> None:
    patch = patched(tmp_path)
    graphed = next(
        node for node in ast.walk(ast.parse(patch.after))
        if isinstance(node, ast.FunctionDef) and node.name == patch.function
    )  # fmt: skip
    assert "report" not in ast.unparse(graphed)
    assert obstacle(reads(recording, BEHIND), patch, tmp_path, tmp_path) is None


def test_a_value_read_in_the_forward_of_another_file_is_named(
    recording: Recording, tmp_path: Path
) -> None:
    text = "def other(x):\n    x.item()\n\n\ndef forward(x):\n    return x / x.sum().item()\n"
    (tmp_path / "model.py").write_text(text)
    patch = patched(tmp_path)
    for line, refused in ((2, False), (6, True)):
        where = SourceLine("model.py", line)
        found = obstacle(reads(recording, INSIDE, where=where), patch, tmp_path, tmp_path)
        assert (found is not None) is refused
    elsewhere = tmp_path / "project"
    assert obstacle(reads(recording, INSIDE, where=where), patch, tmp_path, elsewhere) is None


def test_a_compiled_step_is_tried(tmp_path: Path) -> None:
    compiled = read_recording(RECORDINGS / "torch_compile")
    assert compiled.step is not None
    assert compiled.step.compiled
    assert obstacle(compiled, patched(tmp_path), tmp_path, tmp_path) is None


def test_checks_that_a_fix_turns_off_are_no_obstacle(recording: Recording, tmp_path: Path) -> None:
    script = "from torch.distributions import Normal\n" + SCRIPT.replace(
        "    return out / largest\n", "    Normal(out, 1.0)\n    return out / largest\n"
    )
    patch = patched(tmp_path, script)
    assert [fix for fix, _ in patch.hunks] == ["validate_args"]
    assert obstacle(reads(recording, INSIDE), patch, tmp_path, tmp_path) is None
