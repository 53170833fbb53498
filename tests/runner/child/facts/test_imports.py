"""Imports of the base version get its own files, whatever leads to the current ones."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from launchscope.runner.child.facts.imports import ImportWatch, import_from, loaded_files
from launchscope.runner.protocol.folder import SourceTree


class Editable:
    """What `pip install -e` leaves in site-packages: a finder of a package by its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._folder.name:
            return None
        return importlib.util.spec_from_file_location(name, self._folder / "__init__.py")


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceTree]:
    """The current tree, into which a path and a finder lead, and that of the base version."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    for side in ("now", "then"):
        for name in ("zz_table/__init__", "zz_table/inner", "zz_path", "zz_spread/part"):
            path = tmp_path / side / "src" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"side = {side!r}\n")
    library = tmp_path / "now/.venv/lib/site-packages"
    (library / "zz_installed-1.0.dist-info").mkdir(parents=True)
    (library / "zz_installed.py").write_text("side = 'installed'\n")
    for file in ("now/src/zz_new.py", "now/src/zz_copied.py", "zz_copied.py"):
        (tmp_path / file).write_text("")
    sys.path[:0] = [str(tmp_path / "now/src"), str(library)]
    sys.meta_path.insert(0, Editable(tmp_path / "now/src/zz_table"))
    yield SourceTree(str(tmp_path / "now"), str(tmp_path / "then"))
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def side(name: str) -> str:
    return str(importlib.import_module(name).side)


def test_every_way_into_the_current_tree_is_led_into_the_other_one(trees: SourceTree) -> None:
    assert trees.instead is not None
    import_from(trees.root, trees.instead)
    noticed: list[ModuleType] = []
    ImportWatch("zz_path", noticed.append)
    names = ("zz_table", "zz_table.inner", "zz_path", "zz_spread.part")
    assert {name: side(name) for name in names} == dict.fromkeys(names, "then")
    assert noticed == [sys.modules["zz_path"]]
    assert side("zz_installed") == "installed"  # in an environment inside the tree
    sys.path.insert(0, f"{trees.root}/src")  # as a script may do
    with pytest.raises(ModuleNotFoundError, match="zz_new"):
        importlib.import_module("zz_new")
    assert loaded_files(trees).files == ()


def test_what_was_loaded_from_the_current_tree_is_reported(trees: SourceTree) -> None:
    sys.path.insert(0, str(Path(trees.root).parent))
    for name in ("zz_table.inner", "zz_spread.part", "zz_installed", "zz_copied"):
        importlib.import_module(name)
    found = loaded_files(SourceTree(trees.root))
    names = ("zz_table/__init__.py", "zz_table/inner.py", "zz_spread/part.py")
    assert set(found.files) == {f"{trees.root}/src/{name}" for name in names}
    assert found.installed == ("zz_copied",)  # the tree has one of this name, too
