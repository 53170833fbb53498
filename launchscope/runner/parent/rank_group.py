"""The launchscopes of all ranks of a distributed run, which agree through a store.

They go through the same rounds (sessions) and runs of the script. A rank that waits for another one
asks again and again, and stops when that one is gone.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from launchscope.frozen import dataclass
from launchscope.runner.parent.rank_place import RankPlace
from launchscope.runner.parent.rank_store import START_S, RankStore

_POLL_S, _LOOK_S, _BEAT_S = 0.05, 0.2, 1.0
_SILENT_S = 15.0  # a rank that has not counted up for so long is gone
_AFTER_SIGNAL_S = 8.0  # a launcher kills what is left 30 s after its signal

Wish = Literal["again", "able", "over"]


@dataclass(frozen=True)
class OtherRanks:
    """How far the ranks are in this run. `lost`: one whose script `failed`, or has ended before all
    were measured, so that others may wait for it in a collective."""

    all_measured: bool = False
    lost: int | None = None
    failed: bool = False


class RankGroup:
    """This rank among the others, in a `with` block. `interrupted` is set when a signal ends the
    command."""

    def __init__(self, place: RankPlace):
        self.place, self.rank, self.size = place, place.rank, place.world_size
        self.interrupted = False
        self.own_end: dict[str, Any] = {}  # as published last
        self.round = self.run = 0
        self._task = b""
        self._beats: dict[int, tuple[int, float]] = {}  # of each rank, and since when
        self._others, self._look_at = OtherRanks(), 0.0
        self._left = threading.Event()

    def __enter__(self) -> RankGroup:
        self._store = RankStore(self.place)
        self._beats = dict.fromkeys(range(self.size), (0, time.monotonic()))
        threading.Thread(target=self._be_alive, daemon=True).start()
        return self

    def _be_alive(self) -> None:
        while True:
            self._store.count(f"alive/{self.rank}", 1)
            if self._left.wait(_BEAT_S):
                return

    def __exit__(self, *raised: object) -> None:
        """Rank 0 has reported. It may host the store, and waits until the others have seen that."""
        self._put("left")
        if self.rank == 0:
            self._wait("left", range(self.size), lambda: True)
        self._left.set()
        self._store.close()

    # ------------------------------------------------------------- rounds and runs

    def assign(self, task: bytes) -> None:
        """On rank 0, what the next round is about."""
        self._task = task

    def next_task(self) -> bytes | None:
        """What the round is about that rank 0 begins next; None if it reports, or is gone."""
        return self._from_rank_0(f"{self.round + 1}/task")

    def begin_round(self) -> bytes:
        """The next session of all ranks. What it is about."""
        self.round, self.run = self.round + 1, 0
        if self.rank == 0:
            self._put(self._of_round("task"), self._task)
        return self._from_rank_0(self._of_round("task")) or b""

    def begin_run(self) -> dict[str, str]:
        """The variables of the script in its next run. Its processes meet at a port that no run
        before has used; the store of the launcher is ours."""
        self.run += 1
        self._others = OtherRanks()
        if self.rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                self._put(self._of_run("port"), str(free.getsockname()[1]).encode())
        port = self._from_rank_0(self._of_run("port"))
        own_store = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
        return {} if port is None else {**own_store, "MASTER_PORT": port.decode()}

    def measured(self) -> None:
        """This rank needs no more steps of this run."""
        self._put(self._of_run("measured"))

    def script_failed(self) -> None:
        """The script of this rank has failed in this run: launchers end all ranks then."""
        self._put(self._of_run("failed"))

    def others(self) -> OtherRanks:
        """How far the ranks are, as it was a moment ago."""
        now = time.monotonic()
        if now >= self._look_at and self._others.lost is None:
            self._look_at = now + _LOOK_S
            ended, measured = self._of_round("ended"), self._of_run("measured")
            ready = self._others.all_measured or all(
                self._has(measured, rank) or self._has(ended, rank) for rank in range(self.size)
            )
            ends = [] if ready else [ended, self._of_run("wish")]
            for rank in range(self.size):
                failed = self._has(self._of_run("failed"), rank)
                lost = failed or self._is_gone(rank) or any(self._has(end, rank) for end in ends)
                if lost and rank != self.rank:
                    self._others = OtherRanks(ready, rank, failed)
                    break
            else:
                self._others = OtherRanks(ready)
        return self._others

    def run_again(self, wish: Wish, ended: Callable[[], bool], question: str = "wish") -> bool:
        """Whether the script runs again on all ranks: one of them wants it, and all of them can.
        `ended`: a signal has come meanwhile. Each `question` is asked once after a run."""
        key = self._of_run(question)
        self._put(key, b"over" if ended() else wish.encode())
        self._wait(key, range(self.size), ended)
        wishes = [self._get(key, rank) for rank in range(self.size)]
        return b"again" in wishes and all(wish in (b"again", b"able") for wish in wishes)

    # ------------------------------------------------------------------ the results

    def publish(self, end: dict[str, Any]) -> None:
        """How this round ended on this rank, with what it measured."""
        self.own_end = end
        self._put(self._of_round("ended"), json.dumps(end).encode())

    def gather(self) -> dict[int, dict[str, Any] | None]:
        """What each rank has published; None for one that is gone, or was never there."""
        key = self._of_round("ended")
        self._wait(key, range(self.size), lambda: self.interrupted)
        found = {rank: self._get(key, rank) for rank in range(self.size)}
        return {rank: None if end is None else json.loads(end) for rank, end in found.items()}

    def absent(self) -> list[int]:
        """The ranks whose launchscope was never here."""
        return [rank for rank in range(self.size) if not self._store.count(f"alive/{rank}")]

    def wait_for_report(self) -> bool:
        """Until rank 0 has reported. False if it is gone without a report."""
        return self._from_rank_0("left") is not None

    # ---------------------------------------------------------------------- waiting

    def _from_rank_0(self, key: str) -> bytes | None:
        self._wait(key, [0], lambda: False)
        return self._get(key, 0)

    def _wait(self, key: str, ranks: Iterable[int], ended: Callable[[], bool]) -> None:
        """Until each rank has put this there or is gone, but not for long once it `ended`."""
        give_up = None
        while [r for r in ranks if not (self._has(key, r) or self._is_gone(r))]:
            if give_up is None and ended():
                give_up = time.monotonic() + _AFTER_SIGNAL_S
            if give_up is not None and time.monotonic() > give_up:
                return
            time.sleep(_POLL_S)

    def _is_gone(self, rank: int) -> bool:
        """Whether the launchscope of a rank has left, was killed or never came."""
        if rank == self.rank:
            return False
        beats, (before, since) = self._store.count(f"alive/{rank}"), self._beats[rank]
        if beats != before:
            self._beats[rank] = beats, since = beats, time.monotonic()
        limit = _SILENT_S if beats else START_S
        silent = time.monotonic() > since + limit
        return silent or self._store.is_gone or self._has("left", rank)

    def _of_round(self, key: str) -> str:
        return f"{self.round}/{key}"

    def _of_run(self, key: str) -> str:
        return f"{self.round}/{self.run}/{key}"

    def _put(self, key: str, content: bytes = b"") -> None:
        self._store.put(f"{key}/{self.rank}", content)

    def _has(self, key: str, rank: int) -> bool:
        return self._store.has(f"{key}/{rank}")

    def _get(self, key: str, rank: int) -> bytes | None:
        return self._store.get(f"{key}/{rank}")
