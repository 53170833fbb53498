"""The end of a process is spared the search for garbage, unless that makes a difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.children import recorded

# Each makes something that only a search for garbage finalizes, or that may hold unwritten text.
_MATTERS = {
    "nothing": "",
    "a file that is read": "kept = open(os.devnull)",
    "a finalizer": "class A:\n    def __del__(self): pass\nkept = A()",
    "suspended code of Python's": "import ast\nkept = ast.walk(ast.parse('1'))\nnext(kept)",
    "suspended code": "def f():\n    yield 1\nkept = f()\nnext(kept)",
    "a pipe": "kept = open(os.pipe()[1], 'w')",
    "an archive": "kept = gzip.open(os.devnull, 'wt')",
    "another library in C": "import msgspec",
}
_CHECK = """
import gc, gzip, os, sys, torch
note_torch(torch)
from launchscope.runner.child.code_owner import note_torch
from launchscope.runner.child.shutdown.garbage import flush_and_leave_garbage
for source in sys.argv[1:]:
    names = dict(globals())
    before = set(sys.modules)
    exec(source, names)
    flush_and_leave_garbage()
    print(gc.get_freeze_count() > 0)
    gc.unfreeze()
    names.clear()
    gc.collect()
    for name in set(sys.modules) - before:
        del sys.modules[name]
"""


@pytest.mark.child
@pytest.mark.real_start  # a fork of the server has frozen objects, and open files of the server
def test_garbage_is_left_only_where_nothing_in_it_has_to_run() -> None:
    command = [sys.executable, "-c", _CHECK, *_MATTERS.values()]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    spared = dict(zip(_MATTERS, ran.stdout.split(), strict=True))
    spares = {"nothing", "a file that is read", "suspended code of Python's"}
    assert spared == {name: str(name in spares) for name in _MATTERS}


@pytest.mark.child
def test_objects_that_hold_each_other_are_finalized_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
import torch
class Holds:
    def __init__(self): self.me = self
    def __del__(self, open=open): open("finalized.txt", "w").write("yes")
holds = Holds()
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(200):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
"""
    ran = recorded(tmp_path, source)
    ran.outcome.settle()
    assert ran.outcome.problem is None
    assert (tmp_path / "finalized.txt").read_text() == "yes"
