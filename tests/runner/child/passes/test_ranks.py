"""Ranks of a script capture and replay its step together; real processes, an emulated GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.child


def ran(folder: Path, how: str) -> list[dict[str, Any]]:
    """What each of two ranks found if rank 1 is different in this way."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", "-m", "tests.runner.child.passes.ranks_worker", str(folder), how]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads((folder / str(rank) / "result.json").read_text()) for rank in range(2)]


def test_ranks_that_come_at_different_steps_replay_the_same_one(tmp_path: Path) -> None:
    first, second = ran(tmp_path, "late")
    for rank in first, second:
        assert (rank["status"], rank["bursts"], rank["ended"]) == ("measured", 5, "done")
        assert len(rank["losses"]) == 60


def test_a_rank_that_cannot_capture_makes_all_stay_eager(tmp_path: Path) -> None:
    first, second = ran(tmp_path, "changing")
    assert (first["status"], first["ended"]) == ("skipped", "done")
    assert first["reason"] == "rank 1 cannot capture this step, and a replay needs all ranks"
    assert second["status"] == "skipped"
    assert "rank" not in second["reason"]
    assert len(first["losses"]) == len(second["losses"]) == 60


def test_a_capture_that_fails_on_one_rank_is_replayed_on_none(tmp_path: Path) -> None:
    first, second = ran(tmp_path, "failing")
    assert (first["status"], first["ended"]) == ("failed", "left")
    assert first["reason"].startswith("another rank could not capture or replay the step")
    assert second["status"] == "failed"
    assert "no luck" in second["reason"]
