"""Whose code a file holds depends on where packages are installed, not on what folders are
called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from launchscope.runner.child.facts import code_owner
from launchscope.runner.child.facts.code_owner import note_script, note_torch, owned_file

Owners = Callable[[Path], str]


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """The owner of a file, where the script is the one that was noted last."""
    monkeypatch.setattr(code_owner, "_owners", dict(code_owner._owners))
    note_torch(torch)
    return lambda file: owned_file(str(file)).owner.name.lower()


def test_a_library_is_what_an_installer_has_put_on_the_path(
    libraries: Path, owners: Owners, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(libraries)
    assert owners(libraries / "toymodels" / "net.py") == "library"
    assert owners(tmp_path / "link" / "toymodels" / "net.py") == "library"
    assert owners(tmp_path / "site-packages" / "train.py") == "person"
    assert owners(Path(pytest.__file__)) == "library"
    assert owners(Path(torch.__file__)) == "torch"
    assert owners(Path(os.__file__)) == "python"


@pytest.mark.parametrize(
    ("script", "beside"), [("train.py", "train.py"), ("recipes/train.py", "recipes/helper.py")]
)
def test_a_script_among_installed_packages_is_the_persons_and_so_is_its_folder(
    libraries: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch, script: str, beside: str
) -> None:
    main = SimpleNamespace(__file__=str(libraries / script), __spec__=None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    note_script(str(libraries / script))
    assert owners(libraries / beside) == "person"
    assert owners(libraries / "toymodels" / "net.py") == "library"
