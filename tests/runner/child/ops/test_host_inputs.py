"""Copies of host tensors in the step's own lines, found while a small script runs."""

from __future__ import annotations

import sys
from collections import UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.model import HostInput, TensorShape
from launchscope.runner.child.ops.host_inputs import host_inputs
from launchscope.runner.child.source_lines import short_path


def found_in(
    folder: Path, code: str, lines: list[int], **names: Any
) -> tuple[HostInput, ...] | None:
    """Runs `code`; what is found of its `lines` when it calls `probe()` first."""
    script = folder / "train.py"
    script.write_text(code)
    found: list[tuple[HostInput, ...] | None] = []

    def probe() -> None:
        found.append(host_inputs(torch, sys._getframe(1), short_path(str(script)), lines))

    exec(compile(code, str(script), "exec"), {"probe": probe, "device": "cpu", **names})
    return found[0]


def moved(folder: Path, code: str, lines: list[int], **names: Any) -> list[str]:
    found = found_in(folder, code, lines, **names)
    assert found is not None
    return [entry.expression for entry in found]


X = torch.randn(2, 3)


def test_an_argument_that_the_step_moves_is_found_with_its_shape(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = (x.to(device) * 2).sum()\n    probe()\n    x.cuda\n"
    assert found_in(tmp_path, code, [2], loader=[X]) == (
        HostInput("x.to(device)", TensorShape((2, 3), "float32")),
    )


@pytest.mark.parametrize(
    "batch",
    [{"ids": X, "n": 3}, [X, 3], SimpleNamespace(ids=X, n=3), UserDict(ids=X)],
    ids=["dict", "list", "object", "mapping"],
)
def test_every_tensor_of_a_batch_counts(tmp_path: Path, batch: Any) -> None:
    code = "def move():\n    (lambda: batch.to(device))\n    probe()\nmove()\n"
    assert moved(tmp_path, code, [2], batch=batch) == ["batch.to(device)"]


def test_lines_outside_the_step_do_not_count(tmp_path: Path) -> None:
    code = "x.to(device)\ny = x * 2\nprobe()\nx.to(device)\ndef f():\n    return x.to(device)\n"
    assert moved(tmp_path, code, [2, 6], x=X) == []


def test_a_statement_of_several_lines_is_one(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = torch.relu(\n        x.to(device)\n    )\n    probe()\n"
    assert moved(tmp_path, code, [2], loader=[X], torch=torch) == ["x.to(device)"]


def test_a_model_or_a_view_that_moves_is_no_input(tmp_path: Path) -> None:
    code = "model.to(device)\nx[:, 1:].to(device)\nprobe()\n"
    assert moved(tmp_path, code, [1, 2], x=X, model=torch.nn.Linear(3, 3)) == []


def test_without_the_file_on_the_stack_there_are_no_inputs() -> None:
    assert host_inputs(torch, sys._getframe(), "elsewhere.py", [1]) is None
