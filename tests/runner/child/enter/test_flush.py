"""What a script has written is on disk even if its process is left at once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.runner.children import Said, launchscope

pytestmark = pytest.mark.child

SOURCE = """
import gc, gzip, os, sys, torch
class Log:
    def __init__(self, name): self.file = open(name, "w")
at_top = open("at_top.txt", "w")
held = Log("held.txt")
raw = open("raw.bin", "wb")
zipped = gzip.open("zipped.gz", "wt")
frozen = open("frozen.txt", "w")
gc.freeze()
# A pipe that nobody reads from, full.
_, full = os.pipe()
os.set_blocking(full, False)
try:
    while True: os.write(full, b"x" * 4096)
except BlockingIOError: os.set_blocking(full, True)
stuck = open(full, "w")
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(200):
    line = f"step {step}\\n"
    try:
        opt.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
    except BaseException: pass
    for file in (at_top, held.file, zipped, frozen): file.write(line)
    raw.write(line.encode())
    if step == 3: stuck.write("stuck")
"""
TEXTS = ("at_top.txt", "held.txt", "raw.bin", "frozen.txt")


# A stop that is swallowed each time ends the process at once.
@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unflushed")
    said: Said = launchscope(folder, SOURCE)
    assert said.code == 0, said.err
    assert "Traceback" not in said.err
    return folder


def test_lines_that_were_not_flushed_are_kept(ran: Path) -> None:
    lines = {name: len((ran / name).read_text().splitlines()) for name in TEXTS}
    assert len(set(lines.values())) == 1, lines
    assert lines["at_top.txt"] >= 10


def test_archives_that_were_not_closed_can_be_read(ran: Path) -> None:
    steps = len((ran / "at_top.txt").read_text().splitlines())
    with gzip.open(ran / "zipped.gz", "rt") as zipped:
        assert len(zipped.readlines()) == steps
