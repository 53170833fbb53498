"""How ranks agree, and that none waits for one that is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from launchscope.runner.parent import rank_group
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.rank_place import RankPlace, rank_place

MEETING = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
TORCHRUN = {**MEETING, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (TORCHRUN, (3, 8)),  # `accelerate launch` uses the same launcher
        ({**MEETING, "RANK": "1", "WORLD_SIZE": "4", "LOCAL_SIZE": "4"}, (1, 4)),  # deepspeed
        ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, None),
        ({**TORCHRUN, "RANK": "8"}, None),
        ({**TORCHRUN, "WORLD_SIZE": "many"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),  # of another program
        ({}, None),
    ],
)
def test_the_rank_is_read_from_the_variables_of_the_launcher(
    environ: dict[str, str], place: tuple[int, int] | None
) -> None:
    found = rank_place(environ)
    assert (None if found is None else (found.rank, found.world_size)) == place


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], RankGroup]]:
    """Makes ranks of one run, in this process, from rank 0 on."""
    monkeypatch.setattr(rank_group, "_WAIT_S", 0.5)
    monkeypatch.setattr(rank_group, "_LOOK_S", 0.0)
    monkeypatch.setattr(rank_group, "_AFTER_SIGNAL_S", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    made: list[RankGroup] = []

    def make(rank: int, size: int) -> RankGroup:
        group = RankGroup(RankPlace(rank, size, address)).__enter__()
        made.append(group)
        begun = threading.Thread(target=group.begin_round)  # which waits for rank 0
        begun.start()
        begun.join()
        return group

    yield make
    for group in reversed(made):
        group._store.put("left")
    for group in reversed(made):
        group.__exit__()


def together(calls: list[Callable[[], object]]) -> list[object]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def test_a_script_runs_again_on_all_ranks_or_on_none(
    ranks: Callable[[int, int], RankGroup],
) -> None:
    first, second = ranks(0, 2), ranks(1, 2)
    ports = set()
    cases: list[tuple[rank_group.Wish, rank_group.Wish, bool]] = [
        ("again", "able", True), ("over", "again", False), ("able", "able", False)
    ]  # fmt: skip
    for *wishes, agreed in cases:
        given, same = together([first.begin_run, second.begin_run])
        assert given == same
        assert isinstance(given, dict)
        assert given["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        ports.add(given["MASTER_PORT"])
        asked = [
            lambda group=group, wish=wish: group.run_again(wish, lambda: False)
            for group, wish in zip((first, second), wishes)
        ]
        assert together(list(asked)) == [agreed, agreed]
    assert len(ports) == 3


def test_what_a_rank_measured_reaches_rank_0_whatever_its_size(
    ranks: Callable[[int, int], RankGroup],
) -> None:
    first, second = ranks(0, 2), ranks(1, 2)
    large = {"profile": "x" * (9 << 20)}
    first.publish({})
    second.publish(large)
    assert first.gather() == {0: {}, 1: large}


def test_a_rank_whose_script_failed_is_lost_to_the_others(
    ranks: Callable[[int, int], RankGroup],
) -> None:
    first, second = ranks(0, 2), ranks(1, 2)
    together([first.begin_run, second.begin_run])
    second.script_failed()
    assert (first.others().lost, first.others().failed) == (1, True)
    assert second.others().lost is None


def test_no_rank_waits_without_end_for_one_that_was_killed(
    ranks: Callable[[int, int], RankGroup],
) -> None:
    first, second = ranks(0, 2), ranks(1, 2)
    together([first.begin_run, second.begin_run])
    first.publish({"problem": None})
    assert first.run_again("again", lambda: False) is False
    assert first.gather() == {0: {"problem": None}, 1: None}


def test_a_rank_sees_that_rank_0_is_gone_with_its_store(
    ranks: Callable[[int, int], RankGroup],
) -> None:
    first, second = ranks(0, 2), ranks(1, 2)
    first._store.close()
    assert not second.wait_for_report()
    assert not second.has_next_round()
