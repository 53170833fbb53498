"""Profiles every rank of a distributed run: each records and analyzes its own, rank 0 reports."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from launchscope.config import Settings
from launchscope.errors import LaunchscopeError, MeasureError, ScriptError, UsageError
from launchscope.gate.ranks import rank_to_show, worst_of
from launchscope.model import Profile, RankRow, Ranks, Target
from launchscope.reason_text import reason_text
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.rank_place import rank_place
from launchscope.wording import listed_first, plural
from launchscope.workflows.profile import ProfileResult, ScriptRun, ScriptRunner, free_folder
from launchscope.workflows.progress import Progress
from launchscope.workflows.signals import ignore_further_signals

_STDERR = 2
_MOST_NAMED = 8
_OF_ANOTHER = ("another_rank_failed", "rank_cannot_capture")  # why a replay was given up


@contextlib.contextmanager
def joined_ranks(environ: Mapping[str, str]) -> Iterator[RankGroup | None]:
    """The ranks that a launcher started with this process; None where it runs alone."""
    place = rank_place(environ)
    if place is None:
        yield None
        return
    with RankGroup(place) as group:
        try:
            yield group
        finally:  # a launcher ends all ranks after the first that fails
            ignore_further_signals()
            sys.stdout.flush()


def require_one_process(
    environ: Mapping[str, str],
    what: str,
    hint: str = "torchrun --nproc-per-node 2 -m launchscope profile train.py measures all ranks",
) -> None:
    """UsageError in a process that a launcher started as one rank of several."""
    if rank_place(environ) is not None:
        text = f"{what} measures one process, and this is one of several ranks"
        raise UsageError(text, hint=hint)


class RankEnd(Struct, frozen=True):
    """How a round ended on one rank, and what it measured."""

    problem: str | None = None
    hint: str | None = None
    exit_code: int | None = 0
    of_script: bool = False
    fatal: bool = False  # nothing more is measured
    traceback: str = ""
    unix_s: float = -math.inf  # of the traceback; a script that is killed has none
    profile: Profile | None = None

    @property
    def urgency(self) -> tuple[bool, bool, float]:
        """The script that failed first has the smallest; the others may have missed it in a
        collective."""
        return not self.fatal, not self.of_script, self.unix_s


_GONE = RankEnd("its launchscope was ended from outside", None, None, of_script=True, fatal=True)


class RankRunner(ScriptRunner):
    """Runs a script as one rank of several, and gives its results to rank 0. `keeps`: recordings
    are kept, below the folder that rank 0 has assigned."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        group: RankGroup,
        *,
        stdout: int | None = _STDERR,
        for_gate: bool = False,
        keeps: bool = False,
    ):
        self.group, self._for_gate = group, for_gate
        progress = progress if group.rank == 0 else Progress()
        settings = replace(settings, keep_trace=keeps)
        super().__init__(settings, progress, stdout=stdout, group=group)

    def run(self, target: Target, **options: Any) -> ScriptRun:
        """Run the target once, together with all ranks. What it came to is published. For a gate,
        rank 0 gets the worst of all ranks."""
        self._kept = Path(os.fsdecode(self.group.begin_round()), f"rank-{self.group.rank}")
        run = super().run(target, **options)
        self.group.interrupted = self.group.interrupted or run.interrupted
        self.group.publish(msgspec.to_builtins(self._end_of(run)))
        if not self._for_gate or self.group.rank != 0:
            return run
        found = gathered(self.group)
        profile = worst_of(found.profiles) if found.profiles else None
        missing = None
        if len(found.profiles) < self.group.size:
            ranks = [str(n) for n in range(self.group.size) if n not in found.profiles]
            missing = MeasureError(
                f"{plural(len(ranks), 'rank')} of {self.group.size:,} gave no result "
                f"({listed_first(ranks, _MOST_NAMED)})"
            )
        return replace(run, profile=profile, problem=run.problem or found.problem or missing)

    def follow(self, target: Target, progress: Progress) -> int:
        """On another rank than 0: runs the target as often as rank 0 does. The exit code."""
        with self:
            while self.group.has_next_round():
                self.run(target)
        return wait_for_report(self.group, progress)

    def _end_of(self, run: ScriptRun) -> RankEnd:
        end, problem = RankEnd(), run.problem or run.failed_later
        if run.profile is not None:
            end = replace(end, profile=run.profile)
        if run.script_error is not None:
            unix_s = run.script_error.unix_s or -math.inf
            end = replace(end, traceback=run.script_error.traceback, unix_s=unix_s)
        if problem is None:
            return end
        return replace(
            end,
            problem=str(problem),
            hint=problem.hint,
            exit_code=problem.exit_code,
            of_script=isinstance(problem, ScriptError),
            fatal=run.problem is not None,
        )


class Gathered(Struct, frozen=True):
    """What all ranks of a round gave: their Profiles by rank, and what went wrong first."""

    ranks: Ranks
    profiles: dict[int, Profile]
    problem: LaunchscopeError | None
    failed: RankRow | None  # the rank that had it


def gathered(group: RankGroup) -> Gathered:
    """Waits for the other ranks, and puts together what they measured."""
    from launchscope.analysis.comparison.ranks import rank_row, ranks_of

    rows, profiles = [], {}
    notes: list[str] = []
    problems: list[tuple[RankEnd, RankRow]] = []
    for rank, published in group.gather().items():
        name = f"rank {rank}"
        end = _GONE
        if published is not None:
            end = msgspec.convert(published, RankEnd)
        row = RankRow(name, rank)
        if end.profile is not None:
            profiles[rank] = end.profile
            row = replace(rank_row(end.profile, name), rank=rank, world_size=group.size)
        if end.problem is not None:
            row = replace(row, traceback=end.traceback or None)
            problems.append((end, row))
            if rank in profiles:
                notes.append(f"{name}: {end.problem}")
            else:
                row = replace(row, problem=end.problem)
        rows.append(row)
    notes += _why_not_replayed(profiles)
    made = ranks_of(rows, is_one_run=True)
    made = replace(made, notes=(*made.notes, *notes))
    if not problems:
        return Gathered(made, profiles, None, None)
    end, row = min(problems, key=lambda each: each[0].urgency)
    error = MeasureError(f"{row.name}: {end.problem}", hint=end.hint, exit_code=end.exit_code)
    return Gathered(made, profiles, error, row)


def _why_not_replayed(profiles: Mapping[int, Profile]) -> list[str]:
    """The reason of the first rank that could not replay, where another one only says so."""
    reasons = [(rank, each.replay.reason) for rank, each in profiles.items() if each.replay.reason]
    own = [(rank, reason) for rank, reason in reasons if reason.code not in _OF_ANOTHER]
    if not own or len(own) == len(reasons):
        return []
    rank, reason = own[0]
    return [f"rank {rank} could not be replayed: {reason_text(reason)}"]


def profile_ranks(
    group: RankGroup,
    target: Target,
    settings: Settings,
    progress: Progress,
    *,
    to_stderr: bool = False,
) -> ProfileResult | None:
    """Measures the step of a script on this rank, and reports all of them on rank 0: the Profile of
    the rank to show, with the ranks side by side. None on the others. Raises the
    first problem of any rank if none was measured."""
    stdout = _STDERR if to_stderr else None
    keeps = bool(settings.keep_trace)
    if keeps and group.rank == 0:
        group.keep_in(os.fsencode(free_folder(target)))
    with RankRunner(settings, progress, group, stdout=stdout, keeps=keeps) as runner:
        run = runner.run(target)
        if group.rank != 0:  # it only waits; a launcher ends it once rank 0 has reported a failure
            ignore_further_signals()
            return None
    found = gathered(group)
    if found.failed is not None and found.failed.traceback and found.failed.rank != 0:
        name, text = found.failed.name, found.failed.traceback
        progress.beside(f"the script of {name} ended with this error:\n{text}")
    if not found.profiles:
        assert found.problem is not None
        raise found.problem
    shown, ranks = rank_to_show(found.profiles), found.ranks
    profile = run.profile if shown == 0 and run.profile else found.profiles[shown]
    if shown != 0:
        ranks = replace(
            ranks, notes=(*ranks.notes, f"the step of this report is that of rank {shown}")
        )
    return ProfileResult(replace(profile, ranks=ranks), found.problem)


def wait_for_report(group: RankGroup, progress: Progress) -> int:
    """On another rank than 0: returns once rank 0 has reported. The exit code of this rank's
    script."""
    end = group.own_end
    if group.wait_for_report():
        return int(end["exit_code"]) if end.get("fatal") else 0
    progress.note("rank 0 is gone, so nothing is reported")
    return end.get("exit_code") or 1
