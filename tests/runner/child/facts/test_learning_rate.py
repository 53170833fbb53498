"""Lines of the loop that set a learning rate, found while a small script runs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.runner.child.facts.learning_rate import rate_set_at


def line_in(script: Path, code: str) -> str | None:
    """Runs `code`; the text of the line that is found when it calls `probe()` first."""
    script.write_text(code)
    found: list[str | None] = []

    def probe() -> None:
        files = [str(script), *map(str, script.parent.glob("own_*.py"))]
        trees = {file: ast.parse(Path(file).read_text()) for file in files}
        where = rate_set_at(sys._getframe(1), trees)
        text = None if where is None else Path(where.file).read_text().splitlines()[where.line - 1]
        found.append(text)

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    names: dict[str, Any] = {"probe": probe, "opt": optimizer, "__name__": "__main__"}
    exec(compile(code, str(script), "exec"), names)
    return found[0]


IN_LOOP = """
for epoch in range(2):
    for group in opt.param_groups:
        group["lr"] *= 0.9  # here
    for batch in range(2):
        probe()
"""
HELPER = """
def adjust(optimizer, epoch):
    if epoch == 30:
        for i, g in enumerate(optimizer.param_groups):
            g["lr"] = 0.01  # here

def train():
    probe()

def main():
    for epoch in range(1):
        train()
        adjust(opt, epoch)

main()
"""
CLASSES = """
class Warmup:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.update()

    def update(self):
        first = self.optimizer.param_groups[0]
        first["lr"] = 0.1  # here

class Trainer:
    def __init__(self):
        self.warmup = Warmup(opt)

    def fit(self):
        for step in range(2):
            probe()
            self.warmup.step()

Trainer().fit()
"""


@pytest.mark.parametrize(
    "code",
    [IN_LOOP, HELPER, CLASSES],
    ids=["loop", "helper", "classes"],
)
def test_a_line_of_the_loop_or_of_a_function_that_it_calls_is_found(
    code: str, tmp_path: Path
) -> None:
    line = line_in(tmp_path / "train.py", code)
    assert line is not None
    assert line.endswith("# here")


LOGGED = """
for step in range(2):
    probe()
    logs = {}
    logs["lr"] = opt.param_groups[0]["lr"]
    row = {"rates": [g["lr"] for g in opt.param_groups]}
    row["lr"] = 0.1
    opt.param_groups[0]["momentum"] = 0.5
"""
NO_LOOP = """
probe()
for group in opt.param_groups:
    group["lr"] = 0.1
"""


@pytest.mark.parametrize(
    "code",
    [LOGGED, NO_LOOP],
    ids=["logged", "no loop"],
)
def test_other_lines_set_no_rate_during_training(code: str, tmp_path: Path) -> None:
    assert line_in(tmp_path / "train.py", code) is None


def test_a_helper_in_another_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rates.py").write_text(
        "def cosine(optimizer):\n    optimizer.param_groups[0]['lr'] = 0.1  # here\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "import own_rates\nfor step in range(2):\n    probe()\n    own_rates.cosine(opt)\n"
    assert (
        line_in(tmp_path / "train.py", code) == "    optimizer.param_groups[0]['lr'] = 0.1  # here"
    )
