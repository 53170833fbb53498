"""Paths and arguments with bytes that are no UTF-8 reach the script, and the report is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runner.children import recorded

SCRIPT = """
import os, pathlib, sys, torch
pathlib.Path(__file__).with_name("seen").write_bytes(b"|".join(map(os.fsencode, sys.argv)))
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
"""


@pytest.mark.child
def test_the_script_gets_its_bytes_and_the_recording_is_readable(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"tr\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such name")
    ran = recorded(folder, SCRIPT, os.fsdecode(b"a\xe9"))
    path, argument = (folder / "seen").read_bytes().split(b"|")
    assert path == os.fsencode(folder / "script.py")
    assert argument == b"a\xe9"
    assert ran.recording.inspect is not None
    assert ran.recording.target.args == ("a\\xe9",)
    assert ran.recording.target.name.endswith("tr\\xe9/script.py")
    assert os.fsencode(ran.recording.directory) == os.fsencode(folder / "results")
