"""Ranks capture and replay together or not at all; real processes, on an emulated CUDA graph."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processes import python

pytestmark = pytest.mark.child
Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, str]:
    """What each of two ranks found, by situation, and what they printed until the last one ended
    them."""
    folder = tmp_path_factory.mktemp("ranks")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ended = python(folder, *launcher, "-m", "tests.graphed.ranks_worker", str(folder))
    assert ended.returncode == 1
    files = [folder / f"rank-{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), ended.stderr
    return [json.loads(file.read_text()) for file in files], ended.stderr


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ddp", [11, 1, 4]),
        ("fsdp", [11, 1, 4]),
        ("fsdp evaluated", [11, 1, 4]),  # the call after that gathers once more
        ("tensor parallel", [11, 1, 4]),
        ("all miss", [12, 1, 3]),
        ("one fails", [16, 0, 0]),
        ("one refuses", [16, 0, 0]),
    ],
)
def test_ranks_do_the_same_and_train_as_without_graphs(
    name: str, counts: list[int], launched: tuple[Results, str]
) -> None:
    for rank in launched[0]:
        if name not in rank:
            pytest.skip("FSDP of this torch needs a GPU")
        assert rank[name]["counts"] == counts, rank[name]["reasons"]
        assert rank[name]["losses"] == pytest.approx(rank[name]["eager"], rel=1e-4)


def test_a_rank_says_which_other_one_could_not_capture(launched: tuple[Results, str]) -> None:
    first, second = (rank["one fails"]["reasons"] for rank in launched[0])
    assert first["ranks"] == "rank 1: RuntimeError: no luck"
    assert second["capture_failed"] == "the capture failed: RuntimeError: no luck"
    first, second = (rank["one refuses"]["reasons"] for rank in launched[0])
    assert first["ranks"].startswith("rank 1: the step calls open()")
    assert second["side_effect"] == "the step calls open()"


def test_a_rank_that_never_answers_leaves_the_others_eager(launched: tuple[Results, str]) -> None:
    result = launched[0][0]["one is absent"]
    assert result["counts"] == [16, 0, 0]
    assert result["reasons"]["ranks"] == "rank 1 gave no answer"
    assert result["seconds"] < 10
    assert result["losses"] == result["eager"]


def test_a_step_that_does_not_communicate_is_each_rank_s_own(launched: tuple[Results, str]) -> None:
    for rank in launched[0]:
        assert rank["own"]["counts"] == [12, 1, 3]


def test_a_process_group_that_ends_is_used_by_no_graph_anymore(
    launched: tuple[Results, str],
) -> None:
    for rank in launched[0]:
        assert rank["end"]["before"] > 0
        assert rank["end"]["at_shutdown"] == 0


def test_a_rank_that_alone_cannot_replay_a_call_ends_with_an_error(
    launched: tuple[Results, str],
) -> None:
    text = "call 13 cannot be replayed on rank 1 (something has changed), and rank 0 replays it"
    assert text in launched[1]
