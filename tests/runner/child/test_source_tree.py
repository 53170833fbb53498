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

from launchscope.runner.child.import_watch import ImportWatch
from launchscope.runner.child.source_tree import import_from, loaded_files
from launchscope.runner.protocol.folder import SourceTree


class Editable:
    """What `pip install -e` leaves in site-packages: a finder with a table of packages."""

    def __init__(self, **packages: Path) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = self._packages.get(name)
        if folder is None:
            return None
        file = folder / "__init__.py"
        return importlib.util.spec_from_file_location(name, file)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceTree]:
    """The current tree and that of the base version; everything of `sys` is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    for side in ("now", "then"):
        root = tmp_path / side
        for name in ("zz_table/__init__", "zz_table/inner", "zz_path", "zz_spread/part"):
            path = root / "src" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"side = {side!r}\n")
    library = tmp_path / "now/.venv/lib/site-packages"
    (library / "zz_installed-1.0.dist-info").mkdir(parents=True)
    (library / "zz_installed.py").write_text("side = 'installed'\n")
    (tmp_path / "now/src/zz_new.py").write_text("")
    (tmp_path / "now/src/zz_copied.py").write_text("")
    (tmp_path / "zz_copied.py").write_text("")
    yield SourceTree(str(tmp_path / "now"), str(tmp_path / "then"))
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def side(name: str) -> str:
    return str(importlib.import_module(name).side)


def lead_to_current(trees: SourceTree) -> None:
    root = Path(trees.root)
    sys.path[:0] = [str(root / "src"), str(root / ".venv/lib/site-packages")]
    sys.meta_path.insert(0, Editable(zz_table=root / "src/zz_table"))


def test_every_way_into_the_current_tree_is_led_into_the_other_one(trees: SourceTree) -> None:
    assert trees.instead is not None
    lead_to_current(trees)
    import_from(trees.root, trees.instead)
    names = ("zz_table", "zz_table.inner", "zz_path", "zz_spread.part")
    assert {name: side(name) for name in names} == dict.fromkeys(names, "then")
    assert side("zz_installed") == "installed"  # in an environment inside the tree
    with pytest.raises(ModuleNotFoundError, match="zz_new"):
        importlib.import_module("zz_new")
    # A script that adds the folder by itself.
    sys.path.insert(0, f"{trees.root}/src")
    with pytest.raises(ModuleNotFoundError, match="zz_new"):
        importlib.import_module("zz_new")
    assert importlib.import_module("json") is sys.modules["json"]
    assert loaded_files(trees).files == ()


def test_what_was_loaded_from_the_current_tree_is_reported(trees: SourceTree) -> None:
    lead_to_current(trees)
    for name in ("zz_table.inner", "zz_spread.part", "zz_installed"):
        importlib.import_module(name)
    sys.modules["zz_odd"] = object()  # type: ignore[assignment]
    sys.path.insert(0, str(Path(trees.root).parent))
    importlib.import_module("zz_copied")
    found = loaded_files(SourceTree(trees.root))
    source = f"{trees.root}/src"
    assert set(found.files) == {
        f"{source}/zz_table/__init__.py",
        f"{source}/zz_table/inner.py",
        f"{source}/zz_spread/part.py",
    }
    assert found.installed == ("zz_copied",)  # the tree has one of this name, too


def test_a_watched_module_comes_from_the_other_tree_and_is_noticed(trees: SourceTree) -> None:
    assert trees.instead is not None
    sys.path.insert(0, f"{trees.root}/src")
    import_from(trees.root, trees.instead)
    noticed: list[ModuleType] = []
    ImportWatch("zz_path", lambda module: True, noticed.append).begin()
    assert side("zz_path") == "then"
    assert noticed == [sys.modules["zz_path"]]
