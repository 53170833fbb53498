"""Ranks of a script capture and replay its step together; real processes, an emulated GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processes import python

pytestmark = pytest.mark.child


Found = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each of two ranks found, by what was different on rank 1."""
    folder = tmp_path_factory.mktemp("ranks")
    hows = ("late", "changing", "scaling", "failing")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    worker = ("-m", "tests.runner.child.passes.ranks_worker", str(folder), *hows)
    ended = python(folder, *launcher, *worker)
    assert ended.returncode == 0, ended.stderr
    return {
        how: [json.loads((folder / how / rank / "result.json").read_text()) for rank in "01"]
        for how in hows
    }


def test_ranks_that_come_at_different_steps_replay_the_same_one(found: Found) -> None:
    first, second = found["late"]
    for rank in first, second:
        assert (rank["status"], rank["bursts"], rank["ended"]) == ("measured", 5, "done")
        assert len(rank["losses"]) == 60


def test_a_rank_that_cannot_capture_makes_all_stay_eager(found: Found) -> None:
    first, second = found["changing"]
    assert (first["status"], first["ended"]) == ("skipped", "done")
    assert first["reason"] == "rank 1 cannot capture this step, and a replay needs all ranks"
    assert second["status"] == "skipped"
    assert "rank" not in second["reason"]
    assert len(first["losses"]) == len(second["losses"]) == 60


def test_a_capture_without_memory_on_one_rank_is_replayed_on_none(found: Found) -> None:
    first, second = found["failing"]
    assert (first["status"], first["ended"]) == ("failed", "left")
    assert first["reason"].startswith("another rank could not capture or replay the step")
    assert (second["status"], second["code"]) == ("failed", "out_of_memory")
    assert "no room" in second["reason"]


def test_each_rank_compares_its_own_replays_with_eager(found: Found) -> None:
    for rank in found["late"]:
        assert (rank["check"]["status"], rank["check"]["update_diff"]) == ("verified", [0.0] * 4)
        assert all(loss < 1.0 for loss in rank["losses"])


def test_a_replay_that_is_wrong_on_one_rank_is_found_on_all_with_its_cause_there(
    found: Found,
) -> None:
    first, second = (rank["check"] for rank in found["scaling"])
    assert (first["status"], first["causes"]) == ("different", [])
    assert (second["status"], second["causes"][0]["kind"]) == ("different", "scalar")
    assert first["update_diff"] == second["update_diff"] != [0.0] * 4
