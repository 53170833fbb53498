"""What every test may rely on: the checkout is importable, also in child processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Tests start launchscope as a person does, with `python -m launchscope`, from any folder.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)
# The reports' width and colours must not depend on who runs the tests, nor the
# configuration on the person's own environment.
for name in [n for n in os.environ if n.startswith("LAUNCHSCOPE")]:
    del os.environ[name]
for name in ("FORCE_COLOR", "NO_COLOR", "CI", "GITHUB_ACTIONS", "COLUMNS"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a CUDA device the tests marked gpu are skipped, and say so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def sample_workloads() -> Path:
    """The folder of the plain scripts that launchscope is shown on."""
    return ROOT / "sample_workloads"
