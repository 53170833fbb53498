"""Where the ranks of a run meet, and that none waits for one that is gone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launchscope.errors import MeasureError
from launchscope.runner.parent import rank_group
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.rank_group import RankGroup, remove_abandoned, this_host
from launchscope.runner.parent.rank_place import TEMPORARY, RankPlace, rank_place

MEETING = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
TORCHRUN = {
    **MEETING,
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_ERROR_FILE": "/errors/none_1/attempt_0/3/error.json",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (TORCHRUN, (3, 8)),  # `accelerate launch` uses the same launcher
        ({**MEETING, "RANK": "1", "WORLD_SIZE": "4", "LOCAL_SIZE": "4"}, (1, 4)),  # deepspeed
        ({**MEETING, "LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2)),  # Lightning
        (SLURM, (5, 16)),
        ({**SLURM, **TORCHRUN}, (3, 8)),
        ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, None),
        ({**TORCHRUN, "RANK": "8"}, None),
        ({**TORCHRUN, "RANK": "-1"}, None),
        ({**TORCHRUN, "WORLD_SIZE": "many"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),  # of another program
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}, None),  # a batch script
        ({}, None),
    ],
)
def test_the_rank_is_read_from_the_variables_of_the_launcher(
    environ: dict[str, str], place: tuple[int, int] | None
) -> None:
    found = rank_place(environ)
    assert (None if found is None else (found.rank, found.world_size)) == place


def test_ranks_of_one_run_meet_in_one_folder_and_those_of_the_next_run_in_another() -> None:
    def folder(**changed: str) -> Path:
        found = rank_place({**TORCHRUN, **changed})
        assert found is not None
        return found.folder

    other_rank = "/errors/none_1/attempt_0/0/error.json"
    assert folder() == folder(RANK="0", TORCHELASTIC_ERROR_FILE=other_rank)
    assert folder() != folder(TORCHELASTIC_ERROR_FILE="/errors/none_2/attempt_0/3/error.json")
    assert folder() != folder(TORCHELASTIC_RESTART_COUNT="1")
    assert folder(LAUNCHSCOPE_RANKS="/shared").parent == Path("/shared")


@pytest.fixture
def group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int, int], RankGroup]]:
    """Makes ranks of one run, in this process."""
    monkeypatch.setattr(rank_group, "_ABSENT_S", 0.2)
    monkeypatch.setattr(rank_group, "_ENDING_S", 0.2)
    made: list[RankGroup] = []

    def make(rank: int, size: int) -> RankGroup:
        found = RankGroup(RankPlace(rank, size, tmp_path / "run", True))
        made.append(found.__enter__())
        found.begin_round()
        return found

    yield make
    for found in reversed(made):
        found.__exit__()


def wishes(groups: list[RankGroup], *wishes: rank_group.Wish) -> list[bool]:
    with ThreadPoolExecutor(len(groups)) as pool:
        asked = [
            pool.submit(group.run_again, wish, lambda: False) for group, wish in zip(groups, wishes)
        ]
        return [each.result() for each in asked]


def test_a_script_runs_again_on_all_ranks_or_on_none(
    group: Callable[[int, int], RankGroup],
) -> None:
    groups = [group(0, 2), group(1, 2)]
    for each in groups:
        each.begin_run()
    assert wishes(groups, "again", "able") == [True, True]
    for each in groups:
        each.begin_run()
    assert wishes(groups, "over", "again") == [False, False]
    for each in groups:
        each.begin_run()
    assert wishes(groups, "able", "able") == [False, False]


def test_no_rank_waits_for_one_that_never_came(group: Callable[[int, int], RankGroup]) -> None:
    only = group(0, 2)
    only.begin_run()
    only.publish({"problem": None})
    assert only.run_again("again", lambda: False) is False
    assert only.gather() == {0: {"problem": None}, 1: None}
    assert not only.was_here(1)


def test_ranks_meet_in_no_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "run").symlink_to("mine")
    with (
        pytest.raises(MeasureError, match="cannot meet"),
        RankGroup(RankPlace(0, 2, tmp_path / "run", True)),
    ):
        pass
    assert list((tmp_path / "mine").iterdir()) == []


def test_the_folder_of_the_ranks_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with RankGroup(RankPlace(0, 2, tmp_path / "new" / "run", True)):
            assert stat.S_IMODE((tmp_path / "new" / "run").stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_two_processes_of_one_rank_are_refused(group: Callable[[int, int], RankGroup]) -> None:
    group(1, 2)
    with pytest.raises(MeasureError, match="two processes of this run are rank 1"):
        group(1, 2)


@pytest.mark.child
def test_a_rank_that_was_killed_is_lost_to_the_others(
    group: Callable[[int, int], RankGroup],
) -> None:
    own = group(0, 2)
    own.begin_run()
    assert own.lost_rank() is None
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = json.loads((own.folder / "owners" / "0").read_bytes())
    (own.folder / "owners" / "1").write_text(json.dumps({**owner, "pid": gone.pid}))
    own._lost_at = 0.0
    assert own.lost_rank() == 1
    assert own.run_again("again", lambda: False) is False


def test_a_rank_on_another_machine_of_the_same_name_is_not_looked_for_on_this_one(
    group: Callable[[int, int], RankGroup],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(this_host.cache_clear)
    monkeypatch.setattr(rank_group, "_BOOT", tmp_path / "boot_id")
    groups = []
    for rank in 1, 0:
        (tmp_path / "boot_id").write_text(f"of machine {rank}")
        this_host.cache_clear()
        groups.append(group(rank, 2))
    there = groups[0].folder / "owners" / "1"
    there.write_text(json.dumps({**json.loads(there.read_bytes()), "pid": 2**22 + 1}))
    assert groups[1].lost_rank() is None


def test_scripts_may_stop_once_every_rank_is_measured(
    group: Callable[[int, int], RankGroup],
) -> None:
    groups = [group(0, 2), group(1, 2)]
    for each in groups:
        each.begin_run()
    groups[0].measured()
    groups[0]._stop_when_all_are_measured()
    assert not groups[1].stop_file.exists()
    groups[1].measured()
    groups[0]._stop_when_all_are_measured()
    assert groups[1].stop_file.exists()


def test_what_an_earlier_run_left_in_the_folder_counts_for_nobody(
    group: Callable[[int, int], RankGroup],
) -> None:
    before = group(1, 2)
    before.begin_run()
    before.publish({"problem": "of the earlier run"})
    before._over.set()
    (before.folder / "owners" / "1").write_text(
        json.dumps({"pid": 2**22 + 1, "host": "elsewhere", "world_size": 2})
    )
    own = group(1, 2)
    assert own._names("ended") == []


@pytest.mark.child
def test_what_killed_ranks_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    owners = {"killed": gone.pid, "running": os.getpid(), "recorded": gone.pid, "new": gone.pid}
    for name, pid in owners.items():
        owner = tmp_path / f"{TEMPORARY}7-{name}" / "owners" / "0"
        owner.parent.mkdir(parents=True)
        owner.write_text(json.dumps({"pid": pid, "host": this_host(), "world_size": 2}))
        if name == "recorded":
            recording = owner.parents[1] / "recordings/round-1/rank-0/recording.json"
            recording.parent.mkdir(parents=True)
            recording.write_text("{}")
        for path in (owner, owner.parents[1]):
            os.utime(path, (0, time.time() - (5 if name == "new" else 3600)))
    (tmp_path / "launchscope-ranks-8-killed").mkdir()
    remove_abandoned(tmp_path / f"{TEMPORARY}7-own")
    kept = {path.name.rpartition("-")[2] for path in tmp_path.iterdir() if "7-" in path.name}
    assert kept == {"running", "recorded", "new"}
    assert (tmp_path / "launchscope-ranks-8-killed").exists()


def test_ranks_that_never_came_are_known(group: Callable[[int, int], RankGroup]) -> None:
    assert group(1, 4).absent() == [0, 2, 3]


def test_ranks_that_have_not_started_are_named_to_a_person_who_waits(
    group: Callable[[int, int], RankGroup],
) -> None:
    said: list[ProgressEvent] = []
    watch = ChildWatch(said.append, None, group(0, 3))
    watch._say_what_is_awaited(ChildReport())
    assert said[0].text.startswith("2 ranks of 3 have not started (1 and 2); still waiting")


def test_the_processes_of_a_later_run_meet_in_a_store_of_their_own(
    group: Callable[[int, int], RankGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that of the launcher they would find the addresses of the run before."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    ranks = [group(rank, 2) for rank in range(2)]
    assert [each.begin_run() for each in ranks] == [{}, {}]
    found = [each.begin_run() for each in ranks]
    assert found[0] == found[1]
    assert found[0]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert int(found[0]["MASTER_PORT"]) > 0
    for each in ranks:
        each.begin_round()
    assert [set(each.begin_run()) for each in ranks] == [set(found[0])] * 2
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert [each.begin_run() for each in ranks] == [{}, {}]
