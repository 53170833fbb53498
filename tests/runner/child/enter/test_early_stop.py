"""A script that launchscope ends early leaves what it leaves when Python ends it."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from tests.runner.children import SMALL_STEP, launchscope, python

pytestmark = pytest.mark.child

SOURCE = r"""
import atexit, csv, gzip, queue, sys, tempfile, threading, weakref, zipfile, torch
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
named = tempfile.NamedTemporaryFile(dir=".", prefix="named-")
archive = zipfile.ZipFile("a.zip", "w")
zipped = gzip.open("a.gz", "wt")
rows = csv.writer(open("rows.csv", "w", newline=""))
class Writer:  # like SummaryWriter: a thread that writes from a queue
    def __init__(self):
        self.queue = queue.Queue()
        self.thread = threading.Thread(target=self.run)
        self.thread.daemon = True
        self.thread.start()
        atexit.register(self.close)
    def run(self):
        with open("events.txt", "w") as file:
            while (line := self.queue.get()) is not None: file.write(line)
    def close(self):
        self.queue.put(None)
        self.thread.join()
writer = Writer()
weakref.finalize(net, lambda: open("finalize.txt", "a").write("finalized\n"))
def evaluates():
    open("atexit.txt", "a").write(f"{tuple(net(torch.randn(3, 4)).shape)}\n")
    for _ in range(5): net(torch.randn(3, 4))
atexit.register(evaluates)
def main():
    steps = 0
    try:
        for step in range(int(sys.argv[1]) if sys.argv[1:] else 300):
            opt.zero_grad()
            net(torch.randn(8, 4)).sum().backward()
            opt.step()
            steps += 1
            line = f"step {step}\n"
            archive.writestr(f"{step}.txt", line)
            zipped.write(line)
            writer.queue.put(line)
            rows.writerow([step])
    finally:
        open("steps.txt", "w").write(str(steps))
main()
"""


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder, and the members of the archive."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with zipfile.ZipFile(folder / "a.zip") as archive:
        found["a.zip"] = "".join(
            archive.read(name).decode() for name in archive.namelist()
        ).encode()
    with gzip.open(folder / "a.gz") as zipped:
        found["a.gz"] = zipped.read()
    return found


def test_every_file_is_as_python_leaves_it(tmp_path: Path) -> None:
    early, whole = tmp_path / "early", tmp_path / "whole"
    said = launchscope(early, SOURCE)
    assert said.code == 0, said.err
    steps = (early / "steps.txt").read_text()
    assert 10 < int(steps) < 300
    whole.mkdir()
    (whole / "script.py").write_text(SOURCE)
    expected = python(whole, "script.py", steps, code=0)
    assert content(early) == content(whole)
    assert sorted(path.name for path in early.iterdir()) == sorted(
        path.name for path in whole.iterdir()
    )
    assert set(expected.err.splitlines()) <= set(said.err.splitlines())
    assert said.err.count("Traceback") == expected.err.count("Traceback")


SWALLOWS = """
for i in range(200):
    try: step()
    except BaseException: pass
    print(i)
"""


def test_a_stop_that_is_swallowed_each_time_ends_the_process_at_once(tmp_path: Path) -> None:
    said = launchscope(tmp_path, SMALL_STEP + SWALLOWS)
    assert (said.code, "Traceback" in said.err) == (0, False), said.err
    assert "\n10\n" in said.out
    assert "\n199\n" not in said.out
