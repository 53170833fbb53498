"""What a script has written is on disk even if its process is left at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.children import launchscope

pytestmark = pytest.mark.child

SOURCE = """
import torch
class Log:
    def __init__(self, name): self.file = open(name, "w")
at_top = open("at_top.txt", "w")
held = Log("held.txt")
raw = open("raw.bin", "wb")
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(200):
    line = f"step {step}\\n"
    try:
        opt.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
    except BaseException: pass
    for file in (at_top, held.file): file.write(line)
    raw.write(line.encode())
"""
TEXTS = ("at_top.txt", "held.txt", "raw.bin")


def test_lines_that_were_not_flushed_are_kept(tmp_path: Path) -> None:
    """A stop that is swallowed each time ends the process at once."""
    said = launchscope(tmp_path, SOURCE)
    assert said.code == 0, said.err
    assert "Traceback" not in said.err
    lines = {name: len((tmp_path / name).read_text().splitlines()) for name in TEXTS}
    assert len(set(lines.values())) == 1, lines
    assert lines["at_top.txt"] >= 10
