"""Runs of a script that are compared with one another, each in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from launchscope.adopt.observation import (
    HELD,
    LOGGED_FILE,
    PATCHED_RESULT,
    RESULT,
    STEPS_FILE,
    HeldValues,
    Observation,
    Observed,
    PatchedCalls,
    StepState,
)
from launchscope.errors import MeasureError
from launchscope.model import Reason, Schedule, Target
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import ScriptFailed
from launchscope.runner.protocol.folder import EntryPoint, Plan, SourceTree
from launchscope.runner.protocol.plain import to_plain

_ENTRY_POINTS = "launchscope.adopt.child.entry_points"
_LABELS = {RESULT: "comparing steps"}
_PRINTED, _ERRORS = "output.txt", "errors.txt"
_LONGEST_TAIL = 4000  # characters of what a failed run printed
_LONGEST_OUTPUT = 2**20  # bytes that are compared


@dataclass(frozen=True)
class RunEnd:
    """How a run ended on one rank."""

    exit_code: int | None = None
    signal: int | None = None  # that ended launchscope, too
    timed_out: bool = False
    failed: bool = False
    waited_for: int | None = None  # a rank that had ended; this one was stopped then
    raised: ScriptFailed | None = None  # by the script
    refused_write: str | None = None
    own_failure: Reason | None = None  # of launchscope in the script's process

    @classmethod
    def of(cls, report: ChildReport) -> RunEnd:
        own = report.own_failure
        return cls(
            report.exit_code,
            report.signal,
            report.timed_out,
            report.failed,
            report.lost_rank if report.killed else None,
            report.script_error,
            report.refused_write,
            None if own is None else own.reason,
        )

    @property
    def went_well(self) -> bool:
        failed = self.signal or self.timed_out or self.failed or self.refused_write
        return not failed and self.own_failure is None


# Of a rank whose launchscope is gone.
_GONE = RunEnd(exit_code=-signal.SIGKILL, failed=True)


@dataclass(frozen=True)
class RankRun:
    """What came of one run on one rank. `result` None: its process died. `held`: what the script
    held, in each look at it. `printed`: the beginning of its standard output, and `logged`: of its
    messages to `logging`. `said_last`: the end of its standard error, or else of its output."""

    rank: int
    end: RunEnd
    states: tuple[StepState, ...]
    result: Observed | None
    held: tuple[HeldValues, ...] = ()
    printed: str = ""
    logged: str = ""
    said_last: str = ""

    def was_stopped(self, last: int) -> bool:
        """Whether there may be more that it would have printed; `last`: after so many units."""
        done = 0 if self.result is None else self.result.units or self.result.forwards
        return done >= last or len(self.printed) > _LONGEST_OUTPUT // 4  # bytes of a character


@dataclass(frozen=True)
class ObservedRun:
    """What came of one run, by rank: one in a script of one process. `files`: the text files that
    it wrote."""

    ranks: tuple[RankRun, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def units(self) -> int:
        return 0 if self.result is None else self.result.units

    @property
    def first_to_fail(self) -> RankRun:
        """The one that ended badly before the others, which may have missed it in a collective;
        the first rank if none did."""

        def order(run: RankRun) -> tuple[bool, bool, float]:
            end = run.end
            # One that is killed raises nothing.
            raised_at = -math.inf if end.raised is None else end.raised.unix_s or -math.inf
            return end.went_well and run.result is not None, end.waited_for is not None, raised_at

        return min(self.ranks, key=order)

    @functools.cached_property
    def result(self) -> Observed | None:
        """What holds on all ranks, with the slowest time of each window; None if one died. What
        each rank has for itself is in `ranks`."""
        found = [run.result for run in self.ranks if run.result is not None]
        if len(found) < len(self.ranks):
            return None
        setups = [each.setup_ms for each in found if each.setup_ms is not None]
        return replace(
            found[0],
            units=min(each.units for each in found),
            forwards=min(each.forwards for each in found),
            window_ms=tuple(map(max, zip(*(each.window_ms for each in found)))),
            forced=tuple(e for e in found[0].forced if all(e in each.forced for each in found)),
            switched=min((each.switched for each in found), key=len),
            keeps_states=all(each.keeps_states for each in found),
            seeds_itself=any(each.seeds_itself for each in found),
            setup_ms=max(setups, default=None),
            partial_momentum=any(each.partial_momentum for each in found),
            draws_random=any(each.draws_random for each in found),
            graphs=all(each.graphs for each in found),
        )


@dataclass(frozen=True)
class RankTask:
    """What the ranks do in one round: a run that is compared, with an observation for each; without
    any, they measure the step, for `timeout_s` at most."""

    target: Target
    inside: str
    environ: dict[str, str]
    tree: SourceTree | None = None
    observations: tuple[Observation, ...] = ()
    place: str = ""
    timeout_s: float | None = None

    @classmethod
    def read(cls, content: bytes) -> RankTask:
        """What `content` was made from."""
        return msgspec.convert(json.loads(content), cls)

    def content(self) -> bytes:
        # Not by msgspec: it refuses undecodable paths.
        return json.dumps(asdict(self)).encode()


@dataclass
class ObservedRuns:
    """Starts runs, one at a time, in a `with` block; `timeout_s` bounds them together. `full`: each
    goes on to its end. With a group, its ranks make each run together."""

    on_progress: Callable[[ProgressEvent], None]
    timeout_s: float | None = None
    python: str | None = None
    group: RankGroup | None = None
    _watch: ChildWatch = field(init=False)

    def __enter__(self) -> ObservedRuns:
        self._watch = ChildWatch(self.on_progress, self.timeout_s, self.group, labels=_LABELS)
        self._watch.signals.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._watch.signals.__exit__(*raised)

    @property
    def ranks(self) -> int:
        return 1 if self.group is None else self.group.size

    def run(self, task: RankTask) -> ObservedRun:
        """Carry out a task, on rank 0 of several; its files go to `place`. Raises MeasureError if
        it cannot be started."""
        if self.group is None:
            [observation] = task.observations
            return ObservedRun((self._run(task, observation, Path(task.place), 0),))
        self.group.assign(task.content())
        self.follow(task)
        ends = self.group.gather()
        return ObservedRun(tuple(_rank_run(task, rank, end) for rank, end in ends.items()))

    def follow(self, task: RankTask) -> None:
        """This rank's part of a run that rank 0 has begun."""
        group = self.group
        assert group is not None
        group.begin_round()
        end = _GONE
        try:
            place = _place_of(task, group.rank)
            end = self._run(task, task.observations[group.rank], place, group.rank).end
        finally:
            group.interrupted = group.interrupted or end.signal is not None
            group.publish(to_plain(end))

    def _run(self, task: RankTask, observation: Observation, place: Path, rank: int) -> RankRun:
        plan = Plan(
            target=task.target,
            passes=(),
            schedule=Schedule(),
            tree=task.tree,
            entry_point=EntryPoint(_ENTRY_POINTS, "observe", asdict(observation)),
        )
        report = self._follow(plan, place, Path(task.inside), task.environ, output=True)[1]
        return _read_run(place, rank, RunEnd.of(report))

    def run_patched(
        self, target: Target, replaced: Mapping[str, str], place: Path
    ) -> tuple[ChildReport, PatchedCalls | None]:
        """Run the target here, to its end, with other contents of some sources."""
        plan = Plan(
            target=target,
            passes=(),
            schedule=Schedule(full=True),
            measures=False,
            entry_point=EntryPoint(_ENTRY_POINTS, "run_patched", dict(replaced)),
        )
        folder, report = self._follow(plan, place, None, {}, output=False)
        return report, folder.read(PATCHED_RESULT, PatchedCalls)

    def _follow(
        self,
        plan: Plan,
        place: Path,
        inside: Path | None,
        environ: Mapping[str, str],
        *,
        output: bool,
    ) -> tuple[RunFolder, ChildReport]:
        """A process that carries out the plan, from its start to its end. `output`: what it prints
        goes to files."""
        folder = RunFolder(place)
        try:
            place.mkdir(parents=True)
            with contextlib.ExitStack() as stack:
                printed, errors = (
                    stack.enter_context((place / name).open("wb")).fileno() if output else None
                    for name in (_PRINTED, _ERRORS)
                )
                there = None if inside is None else os.fspath(inside)
                process = Process(self.python, environ, printed, errors, there)
                return folder, self._watch.carry_out(plan, folder, process)
        except OSError as error:
            raise MeasureError(f"a run cannot be started: {error.strerror or error}") from None


def _place_of(task: RankTask, rank: int) -> Path:
    return Path(task.place) / f"rank-{rank}"


def _rank_run(task: RankTask, rank: int, end: dict[str, Any] | None) -> RankRun:
    found = _GONE if end is None else msgspec.convert(end, RunEnd)
    return _read_run(_place_of(task, rank), rank, found)


def _read_run(place: Path, rank: int, end: RunEnd) -> RankRun:
    """What a run has left in its folder."""
    result = None
    with contextlib.suppress(msgspec.MsgspecError):
        result = RunFolder(place).read(RESULT, Observed)
    printed, errors = place / _PRINTED, place / _ERRORS
    said_last = _end_of(errors) if _end_of(errors).strip() else _end_of(printed)
    states, held = _states(place / STEPS_FILE), tuple(_held(RunFolder(place)))
    texts = _output(printed), _output(place / LOGGED_FILE)
    return RankRun(rank, end, states, result, held, *texts, said_last)


def _held(folder: RunFolder) -> Iterator[HeldValues]:
    for number in itertools.count():
        found = None
        with contextlib.suppress(msgspec.MsgspecError):
            found = folder.read(f"{HELD}{number}", HeldValues)
        if found is None:
            return
        yield found


def _output(path: Path) -> str:
    """What a run printed, in whole lines where there is more than is compared."""
    content = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        content = file.read(_LONGEST_OUTPUT)
        if file.read(1):
            content = content[: content.rfind(b"\n") + 1]
    return content.decode(errors="replace")


def _end_of(path: Path) -> str:
    content = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_TAIL))
        content = file.read()
    return content.decode(errors="replace")


def _states(path: Path) -> tuple[StepState, ...]:
    """Those that were written whole."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=StepState))
    return tuple(found)
