"""The launchscopes of all ranks of a distributed run, which meet in a folder.

Every rank writes small files under its number and reads those of the others; none waits for one
that has ended or is gone. All ranks go through the same rounds (sessions) and runs of the script.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import platform
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from launchscope.errors import MeasureError
from launchscope.host import write_whole
from launchscope.runner.parent.rank_place import FOLDER_VARIABLE, TEMPORARY, RankPlace

_BOOT = Path("/proc/sys/kernel/random/boot_id")
AGENT_STORE, PORT = "TORCHELASTIC_USE_AGENT_STORE", "MASTER_PORT"
_POLL_S, _BEAT_S = 0.05, 1.0
# A rank on another machine is gone if it was silent for so long: network file systems show what
# others write late.
_SILENT_S = 60.0
# Ranks start together. A rank that is not there so long after another one has measured shares no
# folder with it.
_ABSENT_S = 10.0
# A rank ends soon after the first one that does; so long is waited for one that does not.
_LAST_S = 600.0
_AFTER_SIGNAL_S = 8.0  # a launcher kills what is left 30 s after its signal
_ENDING_S = 5.0  # for a report that is written to the end of its process
# What ranks left that were killed goes once nobody wrote to it for so long; recordings, which a
# person may still want to report, after a day.
_ABANDONED_S, _RECORDED_S = 60.0, 86_400.0
_OLD_S = 60.0  # what is older than this rank by more is of an earlier run in the same folder

Wish = Literal["again", "able", "over"]


class RankGroup:
    """This rank among the others. In a `with` block: the others see that it is alive. `ended` is
    set when a signal ends the command."""

    def __init__(self, place: RankPlace):
        self.place, self.rank, self.size = place, place.rank, place.world_size
        self.folder = place.folder
        self.round = self.run = 0
        self.interrupted = False
        self.own_end: dict[str, Any] = {}  # as published last
        self._beats: dict[int, tuple[int, float]] = {}  # last seen change of ranks elsewhere
        self._owners: dict[int, dict[str, Any]] = {}
        self._over = threading.Event()
        self._began = 0.0  # by the clock of the file system
        self._lost_at = 0.0
        self._lost: int | None = None

    # ------------------------------------------------------------------- being there

    def __enter__(self) -> RankGroup:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            found = self.folder.lstat()  # a link may lead anywhere, to a folder of ours too
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "it belongs to somebody else")
            for part in ("owners", "alive", "recordings"):
                (self.folder / part).mkdir(mode=0o700, exist_ok=True)
            self._claim()
        except OSError as error:
            raise MeasureError(
                f"the ranks cannot meet in {self.folder}: {error.strerror or error}",
                hint=f"{FOLDER_VARIABLE} names a folder that all ranks can write to",
            ) from None
        threading.Thread(target=self._be_alive, daemon=True).start()
        remove_abandoned(self.folder)
        return self

    def _claim(self) -> None:
        own = self.folder / "owners" / str(self.rank)
        before = self._owner(self.rank)
        if before is not None and _alive_here(before) is True:
            raise MeasureError(
                f"two processes of this run are rank {self.rank}",
                hint="start the script with torchrun, which gives each process a rank of its own",
            )
        if before is not None:  # of an earlier run with the same address
            for old in self.folder.glob(f"round-*/*/{self.rank}"):
                old.unlink(missing_ok=True)
            if self.rank == 0:
                for old in self.folder.glob("round-*/stop-*"):
                    old.unlink(missing_ok=True)
        self._owners.clear()
        owner = {"pid": os.getpid(), "host": this_host(), "world_size": self.size}
        write_whole(own, json.dumps(owner).encode())
        self._began = own.stat().st_mtime

    def _be_alive(self) -> None:
        own, beat = self.folder / "alive" / str(self.rank), 0.0
        while not self._over.wait(_POLL_S):
            with contextlib.suppress(OSError):
                if time.monotonic() > beat + _BEAT_S:
                    own.write_bytes(b"")
                    beat = time.monotonic()
                if self.rank == 0 and self.run:
                    self._stop_when_all_are_measured()

    def __exit__(self, *raised: object) -> None:
        """Rank 0 has reported, and takes the folder with it."""
        self._over.set()
        if self.rank == 0:
            with contextlib.suppress(OSError):  # nobody writes into it under its old name
                over = self.folder.with_name(f"{self.folder.name}-over-{os.getpid()}")
                self.folder.rename(over)
                shutil.rmtree(over, ignore_errors=True)

    def wait_for_report(self) -> bool:
        """Until rank 0 has reported. False if it ended without a report."""
        while not self.was_reported and self._is_alive(0):
            time.sleep(_POLL_S)
        return self.was_reported

    def wait_for_end(self) -> None:
        """Until rank 0 has ended, but not for long."""
        give_up = time.monotonic() + _ENDING_S
        while self._is_alive(0) and time.monotonic() < give_up:
            time.sleep(_POLL_S)

    # ------------------------------------------------------------- rounds and runs

    @property
    def recording(self) -> Path:
        """Where this rank records in this round."""
        return self.folder / "recordings" / f"round-{self.round}" / f"rank-{self.rank}"

    def recording_of(self, rank: int) -> Path:
        return self.recording.with_name(f"rank-{rank}")

    def assign(self, task: bytes) -> None:
        """On rank 0, what the next round is about; the others read it as its `task`."""
        self._put("task", task, self.round + 1)

    def task(self) -> bytes:
        """What the round is about that rank 0 has begun."""
        return self._get("task", 0, self.round + 1) or b""

    def begin_round(self) -> None:
        """The next session of all ranks. Rank 0 says so to the others."""
        self.round += 1
        self.run = 0
        self._put("round", b"")

    def wait_for_round(self) -> bool:
        """Whether rank 0 begins another round; False if it reports, or is gone."""
        give_up = time.monotonic() + _SILENT_S  # for one that does not even start
        while 0 not in self._names("round", self.round + 1):
            absent = self._owner(0) is None and time.monotonic() > give_up
            if self.was_reported or self._is_lost(0) or absent:
                return False
            time.sleep(_POLL_S)
        return True

    def begin_run(self) -> dict[str, str]:
        """The variables of the script in its next run.

        The store of torch's launcher outlives a run, and the processes of the next one would find
        the addresses of those before in it. They make one of their own, at a port from rank 0.
        """
        self.run += 1
        self._lost = None
        if os.environ.get(AGENT_STORE) != "True" or (self.round, self.run) == (1, 1):
            return {}
        name = f"port-{self.run}"
        if self.rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                self._put(name, str(free.getsockname()[1]).encode())
        while (port := self._get(name, 0)) is None and not (self._is_lost(0) or self.was_reported):
            time.sleep(_POLL_S)
        return {} if port is None else {AGENT_STORE: "False", PORT: port.decode()}

    @property
    def stop_file(self) -> Path:
        """It is there once all ranks are measured in this run."""
        return self.folder / f"round-{self.round}" / f"stop-{self.run}"

    def measured(self) -> None:
        """This rank needs no more steps of this run."""
        self._put(f"measured-{self.run}", b"")

    def _stop_when_all_are_measured(self) -> None:
        if self.stop_file.exists():
            return
        ready = {*self._names(f"measured-{self.run}"), *self._names("ended")}
        if all(rank in ready or self._is_lost(rank) for rank in self._ranks()):
            write_whole(self.stop_file, b"")

    def run_again(self, wish: Wish, ended: Callable[[], bool]) -> bool:
        """Whether the script runs again on all ranks: one of them wants it, and all of them can.
        `ended`: a signal has come meanwhile."""
        name = f"wish-{self.run}"
        self._put(name, b"" if ended() else wish.encode())
        self._wait(lambda rank: rank in self._names(name), ended)
        wishes = [self._get(name, rank) for rank in self._ranks()]
        return b"again" in wishes and all(wish in (b"again", b"able") for wish in wishes)

    # ------------------------------------------------------------------ the results

    def publish(self, end: dict[str, Any]) -> None:
        """How this round ended on this rank; its recording is complete."""
        self.own_end = end
        self._put("ended", json.dumps(end).encode())

    def gather(self) -> dict[int, dict[str, Any] | None]:
        """What each rank has published; None for one that is gone, or was never there."""
        self._wait(lambda rank: rank in self._names("ended"), lambda: self.interrupted)
        found: dict[int, dict[str, Any] | None] = dict.fromkeys(self._ranks())
        for rank in found:
            content = self._get("ended", rank)
            found[rank] = None if content is None else json.loads(content)
        return found

    def absent(self) -> list[int]:
        """The ranks whose launchscope was never here."""
        return [rank for rank in self._ranks() if not self.was_here(rank)]

    def was_here(self, rank: int) -> bool:
        return self._owner(rank) is not None

    def world_size_of(self, rank: int) -> int | None:
        owner = self._owner(rank)
        return None if owner is None else owner["world_size"]

    @property
    def was_reported(self) -> bool:
        """Rank 0 has reported: it has removed the folder."""
        return not self.folder.exists()

    def lost_rank(self) -> int | None:
        """A rank whose script has failed, or has ended before all were measured: others may wait
        for it in a collective. It is looked for twice a second at most."""
        now = time.monotonic()
        if self._lost is None and now > self._lost_at:
            self._lost_at = now + 0.5
            ended = {*self._names(f"failed-{self.run}")}
            if not self.stop_file.exists():
                ended |= {*self._names("ended"), *self._names(f"wish-{self.run}")}
            others = (rank for rank in self._ranks() if rank != self.rank)
            gone = (rank for rank in others if rank in ended or self._is_lost(rank))
            self._lost = next(gone, None)
        return self._lost

    def script_failed(self) -> None:
        """The script of this rank has failed in this run: launchers end all ranks then."""
        self._put(f"failed-{self.run}", b"")

    def has_failed(self, rank: int) -> bool:
        return rank in self._names(f"failed-{self.run}")

    def left_rank(self) -> int | None:
        """A rank that was measured and ended its process before the others were: a script that
        needs it for a collective fails then."""
        if self.stop_file.exists():
            return None
        left = {*self._names(f"measured-{self.run}")} & {*self._names(f"wish-{self.run}")}
        return min(left - {self.rank}, default=None)

    # ---------------------------------------------------------------------- waiting

    def _wait(self, ready: Callable[[int], bool], ended: Callable[[], bool]) -> None:
        """Until each rank is ready, or is gone. A rank that is alive is waited for, but not after a
        signal, and not for long where all others are ready."""
        began = time.monotonic()
        limit = _LAST_S
        open_ = list(self._ranks())
        while open_ := [rank for rank in open_ if not ready(rank)]:
            now = time.monotonic()
            if ended():
                limit = min(limit, _AFTER_SIGNAL_S)
            absent = now > began + _ABSENT_S
            waiting = [
                rank
                for rank in open_
                if not self._is_lost(rank) and not (absent and self._owner(rank) is None)
            ]
            if not waiting or now > began + limit:
                return
            time.sleep(_POLL_S)

    def _ranks(self) -> range:
        return range(self.size)

    def _is_lost(self, rank: int) -> bool:
        """Whether the launchscope of a rank was here and is gone."""
        return self._owner(rank) is not None and not self._is_alive(rank)

    def _is_alive(self, rank: int) -> bool:
        owner = self._owner(rank)
        if rank == self.rank or owner is None:
            return owner is not None
        here = _alive_here(owner)
        if here is not None:
            return here
        try:
            beat = (self.folder / "alive" / str(rank)).stat().st_mtime_ns
        except OSError:
            beat = 0
        last, since = self._beats.get(rank, (-1, 0.0))
        if beat != last:
            self._beats[rank] = beat, time.monotonic()
            return True
        return time.monotonic() < since + _SILENT_S

    # ------------------------------------------------------------------------ files

    def _owner(self, rank: int) -> dict[str, Any] | None:
        if rank not in self._owners:
            path = self.folder / "owners" / str(rank)
            with contextlib.suppress(OSError, ValueError):
                if path.stat().st_mtime > self._began - _OLD_S:
                    self._owners[rank] = json.loads(path.read_bytes())
        return self._owners.get(rank)

    def _put(self, kind: str, content: bytes, round_: int | None = None) -> None:
        folder = self.folder / f"round-{round_ or self.round}" / kind
        with contextlib.suppress(OSError):  # the others see that this rank is gone
            if self.folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / str(self.rank), content)

    def _get(self, kind: str, rank: int, round_: int | None = None) -> bytes | None:
        try:
            return (self.folder / f"round-{round_ or self.round}" / kind / str(rank)).read_bytes()
        except OSError:
            return None

    def _names(self, kind: str, round_: int | None = None) -> list[int]:
        """The ranks that have put something there."""
        folder = self.folder / f"round-{round_ or self.round}" / kind
        try:
            return [int(name) for name in os.listdir(folder) if name.isdecimal()]
        except OSError:
            return []


def remove_abandoned(folder: Path) -> None:
    """Removes what earlier runs of this user on this machine left beside the folder, if their ranks
    were killed."""
    stem, _, _ = folder.name.rpartition("-")
    if not stem.startswith(TEMPORARY):
        return
    for other in folder.parent.glob(f"{stem}-*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = other.lstat()
            if other == folder or found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue
            files = (*other.glob("owners/*"), *other.glob("alive/*"))
            quiet_s = time.time() - max(each.stat().st_mtime for each in (other, *files))
            recorded = any(other.glob("recordings/*/*/recording.json"))
            owners = [json.loads(each.read_bytes()) for each in other.glob("owners/*")]
            if quiet_s > (_RECORDED_S if recorded else _ABANDONED_S) and all(
                _alive_here(owner) is False for owner in owners
            ):
                shutil.rmtree(other, ignore_errors=True)


@functools.cache
def this_host() -> str:
    """The machine or container whose processes this one can see. Several may have one name."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):  # a system without /proc
        parts += [_BOOT.read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def _alive_here(owner: dict[str, Any]) -> bool | None:
    """Whether a process of this machine still runs; None for one of another machine."""
    if owner["host"] != this_host():
        return None
    try:
        os.kill(owner["pid"], 0)
        state = Path(f"/proc/{owner['pid']}/stat").read_text(errors="replace")
        return state.rpartition(")")[2].split()[0] != "Z"  # nobody has asked for its exit code yet
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # somebody else's, or a system without /proc
        return True
