"""check --against on a GPU: unchanged code passes, and a launch more is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import launchscope
from tests.regressions import REGRESSIONS, SCRIPT
from tests.workflows.repositories import git, repository, write

pytestmark = pytest.mark.gpu

QUICK = ("--warmup", "5", "--timing", "30", "--trace", "3", "--inspect", "2")


def check(top: Path) -> tuple[int, dict[str, Any]]:
    words = ("--against", "HEAD", "-o", "../out.json", "train.py")
    done = launchscope(top, "check", "-q", *QUICK, *words, timeout=900)
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
