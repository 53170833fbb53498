"""What the starts of launchscope import, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launchscope.cli.app import COMMANDS

pytestmark = [pytest.mark.child, pytest.mark.real_start]

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "sample_workloads/recordings/small_mlp"
HEAVY = {"torch", "pandas", "numpy", "nvtx", "typer", "rich", "msgspec"}


def run(code: str) -> tuple[set[str], str]:
    """What a fresh interpreter imports for the code, and what it prints."""
    before = "import sys; before = set(sys.modules)"
    after = "print(*set(sys.modules) - before, sep='\\n', file=sys.stderr)"
    words = [sys.executable, "-c", f"{before}\n{code}\n{after}"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return set(result.stderr.splitlines()), result.stdout


def run_command(*arguments: str) -> tuple[set[str], str]:
    return run(f"from launchscope.cli import main; assert main({[*arguments]!r}) == 0")


@pytest.mark.parametrize("module", ["runner.child.main", "adopt.child.recorder"])
def test_importing_the_child_brings_no_library_into_the_users_process(module: str) -> None:
    imported, _ = run(f"import launchscope.{module}")
    assert f"launchscope.{module}" in imported
    roots = {name.split(".")[0] for name in imported}
    assert not roots - set(sys.stdlib_module_names) - {"launchscope"}


@pytest.mark.parametrize("module", ["launchscope", "pytest, launchscope.pytest_plugin"])
def test_importing_the_package_or_its_pytest_plugin_imports_nothing_heavy(module: str) -> None:
    assert not HEAVY & run(f"import {module}")[0]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_the_help_of_a_command_imports_only_what_it_prints(command: str | None) -> None:
    words = ["launchscope"] if command is None else ["launchscope", command]
    imported, printed = run_command(*words[1:], "--help")
    assert printed.startswith(f"Usage: {' '.join(words)} ")
    # typer loads pydantic, in versions that have it, where it converts a value.
    assert not {*HEAVY - {"typer"}, "pydantic", "launchscope.model"} & imported


def test_the_version_imports_nothing_heavy() -> None:
    imported, printed = run_command("--version")
    assert printed.strip()
    assert not {"torch", "pandas", "numpy", "nvtx"} & imported


@pytest.mark.parametrize(
    ("path", "spared"), [(RECORDING, set()), (RECORDING / "trace.kineto.json.gz", {"numpy.ma"})]
)
def test_a_report_of_a_trace_or_a_recording_imports_nothing_slow_that_it_does_not_need(
    path: Path, spared: set[str]
) -> None:
    imported, _ = run_command("report", "-q", str(path))
    slow = {"torch", "pandas", "jinja2", "pydantic", "launchscope.report.html"}
    assert not (slow | spared) & imported
