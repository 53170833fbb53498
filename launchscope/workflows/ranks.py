"""Profiles every rank of a distributed run: each records and analyzes its own, rank 0 reports."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launchscope.config import Settings
from launchscope.errors import InputError, LaunchscopeError, MeasureError, ScriptError, UsageError
from launchscope.frozen import dataclass
from launchscope.gate.metrics import OF_RANKS
from launchscope.gate.ranks import rank_to_show, worst_of
from launchscope.host import write_whole
from launchscope.model import Profile, RankRow, Ranks, Target
from launchscope.reason_text import reason_text
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.parent.rank_place import FOLDER_VARIABLE, rank_place
from launchscope.wording import listed_first, plural
from launchscope.workflows.profile import ProfileResult, ScriptRun, ScriptRunner, free_folder
from launchscope.workflows.progress import Progress
from launchscope.workflows.signals import ignore_further_signals

if TYPE_CHECKING:
    from launchscope.analysis.comparison.collectives import Collectives
    from launchscope.analysis.timeline.work import Work
    from launchscope.workflows.profile import OnWork

_STDERR = 2
_PROFILE, _SUMMARY = "profile.json", "ranks.json"
_MOST_ARRIVALS = 200  # of a report; those with the longest waits
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
        yield group


def require_one_process(
    environ: Mapping[str, str],
    what: str,
    hint: str = "torchrun --nproc-per-node 2 -m launchscope profile train.py measures all ranks",
) -> None:
    """UsageError in a process that a launcher started as one rank of several."""
    if rank_place(environ) is not None:
        text = f"{what} measures one process, and this is one of several ranks"
        raise UsageError(text, hint=hint)


def require_one_node(environ: Mapping[str, str], what: str) -> None:
    """UsageError in a process that is one of several ranks on several machines."""
    place = rank_place(environ)
    if place is not None and not place.on_one_node:
        hint = f"start the ranks on one machine: {what} --nproc-per-node 2 train.py"
        raise UsageError(f"{what} compares the ranks of one machine", hint=hint)


class RankRunner(ScriptRunner):
    """Runs a script as one rank of several, and gives its results to rank 0."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        group: RankGroup,
        *,
        stdout: int | None = _STDERR,
        on_work: OnWork | None = None,
        for_gate: bool = False,
    ):
        self.group, self._more, self._for_gate = group, on_work, for_gate
        self._collectives: Collectives | None = None
        progress = progress if group.rank == 0 else Progress()
        super().__init__(settings, progress, stdout=stdout, on_work=self._on_traced, group=group)

    def _on_traced(self, work: Work, pauses: bool) -> None:
        from launchscope.analysis.comparison.collectives import collectives_of

        self._collectives = collectives_of(work.trace)
        if self._more is not None:
            self._more(work, pauses)

    def run(self, target: Target, **options: Any) -> ScriptRun:
        """Run the target once, together with all ranks. What it came to is published. For a gate,
        rank 0 gets the worst of all ranks."""
        rounds, self._collectives = self.group.round, None
        run = super().run(target, **options)
        if self.group.round == rounds:  # it could not even begin
            self.group.begin_round()
        self.group.interrupted = self.group.interrupted or run.interrupted
        self._publish(run)
        if not self._for_gate or self.group.rank != 0:
            return run
        found = gathered(self.group)
        profile = worst_of(found.profiles, found.ranks) if found.profiles else None
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
            while self.group.wait_for_round():
                self.run(target)
        return wait_for_report(self.group, progress)

    def _publish(self, run: ScriptRun) -> None:
        from launchscope.analysis.comparison.ranks import rank_row, ranks_of, summary
        from launchscope.report import render

        group, problem = self.group, run.problem or run.failed_later
        failed = run.script_error
        if run.profile is not None:
            name = f"rank {group.rank}"
            row = replace(rank_row(run.profile, name), rank=group.rank, world_size=group.size)
            found = {name: self._collectives} if self._collectives is not None else {}
            with contextlib.suppress(OSError):
                content = render(run.profile, "json")
                write_whole(group.recording / _PROFILE, _bytes(content))
                ranks = summary(ranks_of([row], found, is_one_run=True), found)
                write_whole(group.recording / _SUMMARY, _bytes(render(ranks, "json")))
        group.publish(
            {
                "problem": None if problem is None else str(problem),
                "hint": None if problem is None else problem.hint,
                "exit_code": 0 if problem is None else problem.exit_code,
                "of_script": isinstance(problem, ScriptError),
                "fatal": run.problem is not None,
                "traceback": "" if failed is None else failed.traceback,
                "unix_s": None if failed is None else failed.unix_s,
            }
        )


def _bytes(content: object) -> bytes:
    assert isinstance(content, bytes)
    return content


@dataclass(frozen=True)
class Gathered:
    """What all ranks of a round gave: their Profiles by rank, and what went wrong first."""

    ranks: Ranks
    profiles: dict[int, Profile]
    problem: LaunchscopeError | None
    failed: RankRow | None  # the rank that had it


def gathered(group: RankGroup) -> Gathered:
    """Waits for the other ranks, and puts together what they measured."""
    from launchscope.analysis.comparison.ranks import ranks_of, with_timelines
    from launchscope.parser import read_profile
    from launchscope.workflows.load_input import summarized

    rows, collectives, profiles = [], {}, {}
    notes: list[str] = []
    problems: list[tuple[tuple[bool, bool, float], LaunchscopeError, RankRow]] = []
    absent = []
    for rank, end in group.gather().items():
        name = f"rank {rank}"
        row, found = RankRow(name, rank), None
        try:
            [(row, found)] = summarized(group.recording_of(rank) / _SUMMARY)
            profiles[rank] = read_profile(group.recording_of(rank) / _PROFILE)
        except InputError:  # it measured nothing
            pass
        size = group.world_size_of(rank)
        if size is not None and size != group.size:
            row = replace(row, world_size=size)
        if end is None and not group.was_here(rank):
            absent.append(str(rank))
            continue
        if end is None:
            end = {"problem": "its launchscope was ended from outside", "fatal": True}
        if end["problem"] is not None:
            error = MeasureError(f"{name}: {end['problem']}", hint=end.get("hint"))
            error.exit_code = end.get("exit_code") or error.exit_code
            # The script that failed first; the others may have missed it in a collective.
            text = end.get("traceback") or ""
            when = end.get("unix_s") or -math.inf  # one that is killed raises nothing
            row = replace(row, traceback=text or None)
            problems.append(((not end["fatal"], not end.get("of_script", True), when), error, row))
            if rank not in profiles:
                row = replace(row, problem=end["problem"])
            else:
                notes.append(f"{name}: {end['problem']}")
        rows.append(row)
        if found is not None:
            collectives[name] = found
    if absent:
        notes.append(
            f"nothing came from {plural(len(absent), 'rank')} of {group.size:,} "
            f"({listed_first(absent, _MOST_NAMED)}): {FOLDER_VARIABLE} names a folder that all "
            "nodes share"
        )
    notes += _why_not_replayed(profiles)
    made = ranks_of(rows, collectives, is_one_run=True)
    by_name = {f"rank {rank}": profile for rank, profile in profiles.items()}
    made = with_timelines(made, by_name.get)
    longest = sorted(made.arrivals, key=lambda each: -each.waited_ms)[:_MOST_ARRIVALS]
    made = replace(made, arrivals=tuple(longest), notes=(*made.notes, *notes))
    first = min(problems, key=lambda each: each[0], default=None)
    return Gathered(made, profiles, *((None, None) if first is None else first[1:]))


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
    on_work: OnWork | None = None,
    to_stderr: bool = False,
) -> ProfileResult | None:
    """Measures the step of a script on this rank, and reports all of them on rank 0: the Profile of
    the rank to show, with the ranks side by side. None on the others. Raises the
    first problem of any rank if none was measured."""
    stdout = _STDERR if to_stderr else None
    with RankRunner(settings, progress, group, stdout=stdout, on_work=on_work) as runner:
        run = runner.run(target)
        if group.rank != 0:  # it only waits; a launcher ends it once rank 0 has reported a failure
            ignore_further_signals()
            return None
    progress.status("waiting for the other ranks")
    found = gathered(group)
    if found.failed is not None and found.failed.traceback and found.failed.rank != 0:
        name, text = found.failed.name, found.failed.traceback
        progress.beside(f"the script of {name} ended with this error:\n{text}")
    if settings.keep_trace:
        folder = shutil.move(group.recording.parent, free_folder(target))
        progress.message(f"kept the recordings in {folder}")
    if not found.profiles:
        assert found.problem is not None
        raise found.problem
    shown, ranks = rank_to_show(found.profiles), found.ranks
    profile = run.profile if shown == 0 and run.profile else found.profiles[shown]
    worst = worst_of(found.profiles, ranks).metrics
    of_all = {key: metric for key, metric in worst.items() if key in OF_RANKS}
    if shown != 0:
        ranks = replace(
            ranks, notes=(*ranks.notes, f"the step of this report is that of rank {shown}")
        )
    made = replace(profile, ranks=ranks, metrics={**profile.metrics, **of_all})
    return ProfileResult(made, found.problem)


def was_reported(group: RankGroup, *, fails: bool = False) -> bool:
    """On another rank than 0: waits until rank 0 has reported; False if it only ended. One that
    `fails` waits until rank 0 has ended, too: a launcher ends all ranks after the first that fails.
    The others must not: launchers of several machines that end together may miss each other."""
    reported = group.wait_for_report()
    if reported:
        ignore_further_signals()  # of the launcher, as above
        if fails:
            group.wait_for_end()
    return reported


def wait_for_report(group: RankGroup, progress: Progress) -> int:
    """On another rank than 0: returns once rank 0 has reported. The exit code of this rank's
    script."""
    end = group.own_end
    code = int(end["exit_code"]) if end and end["fatal"] else 0
    if not was_reported(group, fails=code != 0) and end:
        kept = f"the recording of rank {group.rank} is in {group.recording}"
        if group.was_here(0):
            progress.note(f"rank 0 is gone, so nothing is reported; {kept}")
            return end["exit_code"] or 1
        # Its own report says that. A launcher that fails here would end it before.
        progress.note(
            f"rank 0 does not meet the others in {group.folder}, so its report lacks this rank: "
            f"{FOLDER_VARIABLE} names a folder that all nodes share; {kept}"
        )
    return code
