"""check --against on a GPU: unchanged code passes, and a launch more is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.regressions import REGRESSIONS, SCRIPT
from tests.workflows.repositories import git, repository, write

pytestmark = pytest.mark.gpu

QUICK = ("--warmup", "5", "--timing", "30", "--trace", "3", "--inspect", "2")


def check(top: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "launchscope", "check", "-q", *QUICK, "--against", "HEAD",
         "-o", "../out.json", "train.py"],
        cwd=top, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert git(top, "worktree", "list").count("\n") == 0
    return done.returncode, json.loads((top / "../out.json").read_text())


def test_unchanged_code_passes_and_a_launch_more_fails(tmp_path: Path) -> None:
    top = repository(tmp_path / "project", {"train.py": SCRIPT})
    code, report = check(top)
    limits = {limit["metric"]: limit for limit in report["limits"]}
    assert code == 0
    assert limits["launches_per_step"]["exact"]
    assert limits["launches_per_step"]["value"] == limits["launches_per_step"]["baseline"]
    write(top, {"train.py": REGRESSIONS["extra elementwise op"].script})
    code, report = check(top)
    assert code == 1
    assert "launches_per_step" in {
        limit["metric"] for limit in report["limits"] if limit["outcome"] == "failed"
    }
