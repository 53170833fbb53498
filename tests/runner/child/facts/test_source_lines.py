"""Whose line is named: the person's own, or the library's below a call of its loop. Whose code a
file holds depends on where packages are installed, not on what folders are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.model import SourceLine
from launchscope.runner.child.facts import source_lines
from launchscope.runner.child.facts.source_lines import (
    CodePlace,
    code_place,
    note_library_loop,
    note_script,
    note_torch,
    owned_file,
)

Owners = Callable[[Path], str]


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """The owner of a file, where the script is the one that was noted last."""
    monkeypatch.setattr(source_lines, "_owners", dict(source_lines._owners))
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


def run(places: list[CodePlace], *files: tuple[Path | str, str]) -> None:
    """Run each file's code in one namespace, in which `ask()` notes the place of its caller."""
    space: dict[str, Any] = {"ask": lambda: places.append(code_place(sys._getframe(1)))}
    for name, code in files:
        exec(compile(code, str(name), "exec"), space)


def test_the_persons_own_line_is_named_and_below_a_librarys_loop_that_of_the_library(
    tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_lines, "_library_loops", set())
    trainer, script = libraries / "trainer.py", tmp_path / "train.py"
    called, asked = SourceLine(str(script), 1), SourceLine(str(trainer), 2)
    places: list[CodePlace] = []
    for _ in range(2):
        run(places, (trainer, "def fit():\n    ask()\n"), (script, "fit()\n"))
        note_library_loop(called)
    assert places == [CodePlace(called, asked), CodePlace(asked, asked)]
    assert not note_library_loop(called)


def test_generated_code_is_nobodys_line(tmp_path: Path, libraries: Path) -> None:
    library, script = libraries / "model.py", tmp_path / "train.py"
    places: list[CodePlace] = []
    run(
        places,
        # As beartype, attrs, torch.fx and others name what they generate.
        ("<@beartype(model.forward) at 0x7f>", "def wrapped():\n    ask()\n"),
        (library, "\ndef forward():\n    wrapped()\n"),
        (script, "forward()\n"),
    )
    assert places == [CodePlace(SourceLine(str(script), 1), SourceLine(str(library), 3))]


def test_a_file_of_the_repository_has_the_same_name_in_every_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "checkout" / "experiments"
    start.mkdir(parents=True)
    monkeypatch.setattr(source_lines, "_START", str(start))
    alone = source_lines._root.__wrapped__()
    (start.parent / ".git").mkdir()
    monkeypatch.setattr(source_lines, "_root", source_lines._root.__wrapped__)
    shorten = source_lines.short_path.__wrapped__
    assert alone == str(start)
    assert shorten(f"{start}/../train.py") == "../train.py"
    assert shorten(f"{start}/train.py") == "train.py"
    assert shorten(f"{tmp_path}/elsewhere/net.py") == f"{tmp_path}/elsewhere/net.py"
