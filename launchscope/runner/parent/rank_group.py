"""The launchscopes of all ranks of a distributed run, which agree through a store.

They go through the same rounds (sessions) and runs of the script. A rank that waits for another one
asks again and again, up to a time limit; launchers end all ranks after one that is killed.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from launchscope.runner.parent.rank_place import RankPlace
from launchscope.runner.parent.rank_store import RankStore

_POLL_S, _LOOK_S = 0.05, 0.2
_WAIT_S = 300.0  # for the other ranks, which end their runs together
_AFTER_SIGNAL_S = 8.0  # a launcher kills what is left 30 s after its signal

Wish = Literal["again", "able", "over"]


class OtherRanks(Struct, frozen=True):
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
        self._folder = b""
        self._others, self._look_at = OtherRanks(), 0.0

    def __enter__(self) -> RankGroup:
        self._store = RankStore(self.place)
        return self

    def __exit__(self, *raised: object) -> None:
        """Rank 0 has reported. It may host the store, and waits until the others have seen that."""
        self._store.put("left")
        if self.rank == 0:
            self._wait("left", range(self.size), lambda: True, _WAIT_S)
        self._store.close()

    # ------------------------------------------------------------- rounds and runs

    def keep_in(self, folder: bytes) -> None:
        """On rank 0, where all ranks keep the recordings of the next round."""
        self._folder = folder

    def has_next_round(self) -> bool:
        """Whether rank 0 begins another one; False if it reports, or is gone."""
        return self._from_rank_0(f"{self.round + 1}/folder") is not None

    def begin_round(self) -> bytes:
        """The next session of all ranks. The folder of its recordings; empty if none are kept."""
        self.round, self.run = self.round + 1, 0
        if self.rank == 0:
            self._store.put(self._of_round("folder"), self._folder)
        return self._from_rank_0(self._of_round("folder")) or b""

    def begin_run(self) -> dict[str, str]:
        """The variables of the script in its next run. Its processes meet at a port that no run
        before has used; the store of the launcher is ours."""
        self.run += 1
        self._others = OtherRanks()
        if self.rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                self._store.put(self._of_run("port"), str(free.getsockname()[1]).encode())
        port = self._from_rank_0(self._of_run("port"))
        own_store = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
        return {} if port is None else {**own_store, "MASTER_PORT": port.decode()}

    def measured(self) -> None:
        """This rank needs no more steps of this run."""
        self._store.put(self._of_run("measured"))

    def script_failed(self) -> None:
        """The script of this rank has failed in this run: launchers end all ranks then."""
        self._store.put(self._of_run("failed"))

    def others(self) -> OtherRanks:
        """How far the ranks are, as it was a moment ago."""
        now = time.monotonic()
        if now >= self._look_at and self._others.lost is None:
            self._look_at = now + _LOOK_S
            ended, measured = self._of_round("ended"), self._of_run("measured")
            ready = self._others.all_measured or all(
                self._store.has(measured, rank) or self._store.has(ended, rank)
                for rank in range(self.size)
            )
            ends = [] if ready else [ended, self._of_run("wish")]
            for rank in range(self.size):
                failed = self._store.has(self._of_run("failed"), rank)
                lost = failed or any(self._store.has(end, rank) for end in (*ends, "left"))
                if rank != self.rank and (lost or self._store.is_gone):
                    self._others = OtherRanks(ready, rank, failed)
                    break
            else:
                self._others = OtherRanks(ready)
        return self._others

    def run_again(self, wish: Wish, ended: Callable[[], bool], question: str = "wish") -> bool:
        """Whether the script runs again on all ranks: one of them wants it, and all of them can.
        `ended`: a signal has come meanwhile. Each `question` is asked once after a run."""
        key = self._of_run(question)
        self._store.put(key, b"over" if ended() else wish.encode())
        self._wait(key, range(self.size), ended, _WAIT_S)
        wishes = [self._store.get(key, rank) for rank in range(self.size)]
        return b"again" in wishes and all(wish in (b"again", b"able") for wish in wishes)

    # ------------------------------------------------------------------ the results

    def publish(self, end: dict[str, Any]) -> None:
        """How this round ended on this rank, with what it measured."""
        self.own_end = end
        self._store.put(self._of_round("ended"), json.dumps(end).encode())

    def gather(self) -> dict[int, dict[str, Any] | None]:
        """What each rank has published; None for one that is gone, or was never there."""
        key = self._of_round("ended")
        self._wait(key, range(self.size), lambda: self.interrupted, _WAIT_S)
        found = {rank: self._store.get(key, rank) for rank in range(self.size)}
        return {rank: None if end is None else json.loads(end) for rank, end in found.items()}

    def wait_for_report(self) -> bool:
        """Until rank 0 has reported. False if it is gone without a report."""
        return self._from_rank_0("left") is not None

    # ---------------------------------------------------------------------- waiting

    def _from_rank_0(self, key: str) -> bytes | None:
        """Rank 0 may take its time: it analyzes, and makes changes."""
        self._wait(key, [0], lambda: False, math.inf)
        return self._store.get(key, 0)

    def _wait(
        self, key: str, ranks: Iterable[int], ended: Callable[[], bool], limit_s: float
    ) -> None:
        """Until each rank has put this there or has left, but not for long once it `ended`."""
        give_up = time.monotonic() + limit_s
        while [r for r in ranks if not (self._store.has(key, r) or self._has_left(r))]:
            now = time.monotonic()
            if ended():
                give_up = min(give_up, now + _AFTER_SIGNAL_S)
            if now > give_up:
                return
            time.sleep(_POLL_S)

    def _has_left(self, rank: int) -> bool:
        return rank != self.rank and (self._store.is_gone or self._store.has("left", rank))

    def _of_round(self, key: str) -> str:
        return f"{self.round}/{key}"

    def _of_run(self, key: str) -> str:
        return f"{self.round}/{self.run}/{key}"
