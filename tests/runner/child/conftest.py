"""What several tests of the child need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path into which an installer has put a package."""
    folder = tmp_path / "libraries"
    (folder / "toymodels-1.2.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    return folder
