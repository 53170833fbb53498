"""What is done once a module is imported is done with that one, whatever else has its name."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import launchscope.graphed
from launchscope.runner.child.facts.import_watch import ImportWatch


def test_a_copy_of_the_runtime_is_found_behind_another_module_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("training_of_graphs", "graph_runtime"):
        (tmp_path / name).mkdir()
    (tmp_path / "training_of_graphs" / "graphed.py").write_text("class GraphedStep: pass\n")
    folder = Path(str(launchscope.graphed.__file__)).parent
    shutil.copytree(folder, tmp_path / "graph_runtime" / "graphed")
    found: list[ModuleType] = []

    def is_ours(module: ModuleType) -> bool:
        return hasattr(module, "EagerReason")

    watch = ImportWatch("graphed", is_ours, found.append, anywhere=True)
    watch.begin()
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("training_of_graphs", "graph_runtime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(f"{name}.graphed")
    assert [module.__name__ for module in found] == ["graph_runtime.graphed"]
    assert watch not in sys.meta_path
