"""Plug-ins: modules of a package that expose a constant."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.plugins import load_plugins


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"plugins_of_{request.node.name}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "one.py").write_text("WORD = 'one'\n")
    (folder / "base.py").write_text("OTHER = 'no plug-in'\n")
    (folder / "two.py").write_text("WORD = 'two'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_every_module_that_exposes_the_constant_is_found(package: str) -> None:
    assert load_plugins(package, "WORD", str) == ("one", "two")


def test_a_constant_of_another_type_is_a_mistake_of_ours(package: str) -> None:
    with pytest.raises(AssertionError, match=r"one\.WORD is no int"):
        load_plugins(package, "WORD", int)
