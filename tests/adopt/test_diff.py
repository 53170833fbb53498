"""A patch is applied by git, whatever the encoding and the line ends of its file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launchscope.adopt.diff import diff_lines
from launchscope.adopt.patch import Patch
from launchscope.model import Adoption, AdoptionOutcome, Environment, Target
from launchscope.report import render
from launchscope.report.patch import UNVERIFIED
from launchscope.visible import encodable, visible
from tests.report.hostile import NASTY

BEFORE = b"import torch\nx = 1\ny = 2\n"
AFTER = b"import torch\nfrom launchscope import graphed\nx = 1\ny = 3\n"


def patch_of(file: Path, before: bytes = BEFORE, after: bytes = AFTER) -> Patch:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before)
    return Patch(file, before, after, "step", 2, 3, "step")


def patch_file(patch: Patch, root: Path, outcome: AdoptionOutcome) -> bytes:
    target, lines = Target("script", "x.py", ()), diff_lines(patch, root)
    rendered = render(Adoption(target, Environment(), outcome, diff=lines), "patch")
    assert isinstance(rendered, bytes)
    return rendered


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


@pytest.mark.child
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE, AFTER),
        (BEFORE.replace(b"\n", b"\r\n"), AFTER.replace(b"\n", b"\r\n")),
        (b"# \xe9\x0c\x85\nx = 1", b"# \xe9\x0c\x85\nx = 2"),
        (b"x = 1", b"x = 1\ny = 2\n"),
    ],
)
def test_git_applies_it(tmp_path: Path, before: bytes, after: bytes) -> None:
    patch = patch_of(tmp_path / "a folder" / "train.py", before, after)
    git(tmp_path, "init", "-q")
    saved = tmp_path / "graph.patch"
    saved.write_bytes(patch_file(patch, tmp_path, "unverified"))
    assert saved.read_bytes().startswith(UNVERIFIED.encode())
    git(tmp_path, "apply", "graph.patch")
    assert patch.file.read_bytes() == after


@pytest.mark.child
def test_git_applies_it_to_a_file_of_any_name(tmp_path: Path) -> None:
    names = {os.fsdecode(os.fsencode(encodable(f"{name}.py"))) for name in NASTY}
    names = {name for name in names if "/" not in name and "\0" not in name}
    names |= {os.fsdecode(b"\xe9.py"), "x\n--- a/other.py\n.py", "x" * 252 + ".py"}
    patches = [patch_of(tmp_path / name) for name in sorted(names)]
    texts = [patch_file(p, tmp_path, "verified") for p in patches]
    git(tmp_path, "init", "-q")
    (tmp_path / "graph.patch").write_bytes(b"".join(texts))
    git(tmp_path, "apply", "graph.patch")
    assert all(patch.file.read_bytes() == AFTER for patch in patches)
    for patch in patches:
        head, *_ = diff_lines(patch, tmp_path)
        assert head.startswith("diff --git ")
        assert visible(head) == head


@pytest.mark.child
def test_git_applies_the_lines_that_people_see(tmp_path: Path) -> None:
    patch = patch_of(tmp_path / "train.py")
    lines = diff_lines(patch, tmp_path)
    assert lines[0] == "diff --git a/train.py b/train.py"
    assert "+from launchscope import graphed" in lines
    git(tmp_path, "init", "-q")
    (tmp_path / "copied.patch").write_text("\n".join(lines) + "\n")
    git(tmp_path, "apply", "copied.patch")
    assert patch.file.read_bytes() == AFTER
