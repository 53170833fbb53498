"""Whose code a file holds depends on where packages are installed, not on what folders are called.
The runner and `graphed` decide alike, each on its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import launchscope.graph_step as graph_step
from launchscope.runner.child.facts import source_lines
from launchscope.runner.child.facts.source_lines import note_script, note_torch, owned_file

Owners = Callable[[Path], tuple[str, str]]


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """The owner of a file by both definitions, where the script is the one that was noted last."""
    monkeypatch.setattr(source_lines, "_owners", dict(source_lines._owners))
    note_torch(torch)
    graph_step._owner.cache_clear()
    graph_step._owners.cache_clear()
    return lambda file: (owned_file(str(file)).owner.name.lower(), graph_step._owner(str(file)))


def test_a_library_is_what_an_installer_has_put_on_the_path(
    libraries: Path, owners: Owners, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(libraries)
    assert owners(libraries / "toymodels" / "net.py") == ("library", "installed")
    assert owners(tmp_path / "link" / "toymodels" / "net.py") == ("library", "installed")
    assert owners(tmp_path / "site-packages" / "train.py") == ("person", "person")
    assert owners(Path(pytest.__file__)) == ("library", "installed")
    assert owners(Path(torch.__file__)) == ("torch", "torch")
    assert owners(Path(os.__file__)) == ("python", "python")


@pytest.mark.parametrize(
    ("script", "beside"), [("train.py", "train.py"), ("recipes/train.py", "recipes/helper.py")]
)
def test_a_script_among_installed_packages_is_the_persons_and_so_is_its_folder(
    libraries: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch, script: str, beside: str
) -> None:
    main = SimpleNamespace(__file__=str(libraries / script), __spec__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    note_script(str(libraries / script))
    assert owners(libraries / beside) == ("person", "person")
    assert owners(libraries / "toymodels" / "net.py") == ("library", "installed")
