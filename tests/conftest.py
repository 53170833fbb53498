"""What every test may rely on: the checkout is importable, also in child processes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests import forkserver

ROOT = Path(__file__).parents[1]

# Tests start launchscope as a person does, with `python -m launchscope`, from any folder.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)
# The reports' width and colors must not depend on who runs the tests, nor the
# configuration on the person's own environment.
for name in [n for n in os.environ if n.startswith("LAUNCHSCOPE")]:
    del os.environ[name]
for name in ("FORCE_COLOR", "NO_COLOR", "CI", "GITHUB_ACTIONS", "COLUMNS"):
    os.environ.pop(name, None)
# Commands keep the last run there, not in the home folder of who runs the tests.
CACHE = tempfile.mkdtemp(prefix="launchscope-tests-")
os.environ["XDG_CACHE_HOME"] = CACHE
# Without it every child compiles launchscope again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Workers, and their children, share the cores; OpenMP threads that wait for a core slow each other
# down: checks of `adopt` took five times as long with two busy cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A fork of a process that has asked whether there is a GPU cannot use one: torch gives its tests an
# "initialization error" in the workers of pytest-xdist, too.
SERVER = None if os.path.exists("/dev/nvidiactl") else forkserver.Server()
forkserver.install(SERVER)
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
_childless = ""  # the test that runs, unless it is marked child


def _forbid_children(event: str, arguments: tuple[object, ...]) -> None:
    if _childless and event in _STARTS:
        pytest.fail(f"{_childless} starts a child process: mark it with pytest.mark.child")


sys.addaudithook(_forbid_children)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests that need a CUDA device if there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_unconfigure() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Takes Python processes from the fork server unless the test is about how they start."""
    global _childless
    marks = {mark.name for mark in item.iter_markers()}
    _childless = "" if marks & {"child", "gpu"} else item.nodeid
    forkserver.Popen.server = None if marks & {"real_start", "gpu"} else SERVER


@pytest.fixture
def sample_workloads() -> Path:
    """The folder of the plain scripts that launchscope is shown on."""
    return ROOT / "sample_workloads"
