"""The parent: runs the script as often as the passes need, and collects one Recording.

Whatever happens to a child, what it had written is kept: `recording.json` is always written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from launchscope.errors import LaunchscopeError, ScriptError
from launchscope.host import working_directory
from launchscope.model import Reason, Schedule, Target
from launchscope.reason_text import reason_text
from launchscope.runner.parent.child_report import (
    ChildReport,
    cannot_write,
    failure_after,
    problem_of,
)
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.rank_group import RankGroup, Wish
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.parent.time_left import TimeLeft
from launchscope.runner.protocol.events import FilesLoaded, ScriptEnded, ScriptFailed, StepGone
from launchscope.runner.protocol.folder import Plan, SourceTree
from launchscope.runner.protocol.passes import PASSES, PassInfo
from launchscope.runner.protocol.plain import to_plain
from launchscope.wording import listed

# Under --full the last run measures nothing, and does not count toward --max-runs.
_TO_ITS_END = Reason("to_its_end")
# Events of a kind that was seen at least this often can be steps.
_SEEN_OFTEN = 3
# With so few of them, hardly one is left to measure once a period was seen three times.
_FEW = 4


@dataclass(frozen=True)
class RunOptions:
    process: Process = field(default_factory=Process)
    timeout_s: float | None = None  # of all runs together
    max_runs: int = 4
    strategy: str | None = None  # for adopting graphs, that it runs under
    tree: SourceTree | None = None
    group: RankGroup | None = None  # of the ranks that run it together


@dataclass(frozen=True)
class Outcome:
    """`directory` holds recording.json even when there is a problem. `settle` waits for the last
    process of the script to end, so that nothing it prints comes after the report. `failed_later`:
    how a script that was let finish failed once it was measured, which is no problem of the run."""

    directory: Path
    problem: LaunchscopeError | None
    interrupted: bool
    exit_code: int
    settle: Callable[[], None] = lambda: None
    loaded: tuple[FilesLoaded, ...] = ()  # of the tree that the options name
    failed_later: ScriptError | None = None
    script_error: ScriptFailed | None = None


def record(
    target: Target,
    schedule: Schedule,
    options: RunOptions,
    directory: Path,
    on_progress: Callable[[ProgressEvent], None],
) -> Outcome:
    """Run the target until every pass has its result or cannot get one."""
    return _Session(target, schedule, options, directory, on_progress).run()


@dataclass
class _Session:
    target: Target
    schedule: Schedule
    options: RunOptions
    directory: Path
    on_progress: Callable[[ProgressEvent], None]

    def __post_init__(self) -> None:
        self.collected = Collected(self.directory)
        self._passes = [kind for kind in PASSES.values() if kind.steps(self.schedule) > 0]
        # The last schedule that was made to fit the script, and the passes it was made for.
        self._fitted: tuple[Schedule, list[PassInfo]] | None = None
        self._ran_well = False  # in a run before the last
        self._begin_after = 0  # optimizer steps, with the search for the step
        self._left_out: str | None = None  # a pass during which the script failed
        self._failed_later: ScriptError | None = None
        self._exit_code: int | None = None
        self._start = working_directory()
        self._watch = ChildWatch(self.on_progress, self.options.timeout_s, self.options.group)

    def run(self) -> Outcome:
        try:
            with self._watch:
                report = self._run_as_often_as_needed()
                problem = self._conclude(report)
        except BaseException:  # Ctrl-C too: nobody else would wait for the script
            self._watch.close()
            raise
        number = report.signal or self._watch.signals.caught
        code = problem.exit_code if problem is not None else 0
        if number is not None:  # as a shell gives it
            code = 128 + number
        return Outcome(
            self.directory,
            problem,
            number is not None,
            code,
            self._watch.close,
            tuple(self.collected.loaded),
            self._failed_later,
            report.script_error,
        )

    def _run_as_often_as_needed(self) -> ChildReport:
        report, again = ChildReport(), None
        while self._may_run(again):
            last, to_its_end = report, again == _TO_ITS_END
            self._announce(again)
            try:
                report = self._run_child(to_its_end, stand_in=not to_its_end or last.named_cuda)
            except OSError as error:
                report.write_error = error
                break
            self._exit_code = report.exit_code
            if to_its_end:
                self._failed_later = failure_after(report)
                last.signal, last.script_error = report.signal, report.script_error
                return last
            again = self._take(report)
        return report

    def _may_run(self, again: Reason | None) -> bool:
        if not self.collected.runs:
            return self._watch.signals.caught is None
        if again is None or self._watch.signals.caught is not None:
            return False
        if again == _TO_ITS_END:
            return not self._watch.is_over_time
        most = self.options.max_runs
        if self.collected.runs >= most:
            self.collected.note(
                f"not everything was measured: {reason_text(again)}, which takes one more run of "
                f"the script (--max-runs is {most})"
            )
        return self.collected.runs < most

    def _announce(self, again: Reason | None) -> None:
        # Its last line of output may be missing.
        text = f"running {self.target.name} until its step is measured"
        if again is not None:
            text = f"running the script again: {reason_text(again)}"
            self.collected.note(f"the script was run again: {reason_text(again)}")
        self.on_progress(ProgressEvent("run", self.target.name, text=text))

    def _take(self, report: ChildReport) -> Reason | None:
        """Collect what a run has measured; why there is another one."""
        collected = self.collected
        searches = report.other_step is not None and collected.runs < self.options.max_runs
        if not searches:
            collected.take(report)
        if self._left_out is not None and not report.failed:
            collected.note(
                f"the script failed while launchscope ran the {self._left_out} pass and went "
                f"well without it: this is a bug in launchscope, please report it"
            )
        if report.interrupted or report.timed_out or report.write_error is not None:
            if self.options.group is not None:
                self.options.group.run_again("over", lambda: True)
            return None
        again = self._leave_side_stream() or self._why_again(report)
        if again is None and self.schedule.full and self._goes_on(report):
            again = _TO_ITS_END
        again = self._with_other_ranks(again)
        if searches and again is not None:
            collected.forget_step()
        elif searches:
            collected.take(report)
        self._ran_well = self._ran_well or not (report.exit_code or report.failed)
        return again

    def _goes_on(self, report: ChildReport) -> bool:
        """Whether a run of the script by itself would come to its own end."""
        if report.lost_rank is not None and report.killed:
            return False  # without that rank it would have waited for ever
        if not os.path.isdir(self._start):
            self.collected.note("the folder of the script is gone, so it was not run to its end")
            return False
        return report.was_stopped or (self._measured and report.exit_code == 0)

    def _with_other_ranks(self, again: Reason | None) -> Reason | None:
        """Why all ranks run the script once more; None if one of them cannot."""
        group, signals = self.options.group, self._watch.signals
        if group is None:
            return again
        may = again == _TO_ITS_END or self.collected.runs < self.options.max_runs
        wish: Wish = "over" if not may else "able" if again is None else "again"
        if group.run_again(wish, lambda: signals.caught is not None):
            return again or Reason("another_rank")
        if again is not None:
            why = reason_text(again)
            self.collected.note(
                f"not everything was measured: {why}, and another rank cannot run once more"
            )
        return None

    def _conclude(self, report: ChildReport) -> LaunchscopeError | None:
        """Write the recording; the problem to report, None if there is none."""
        collected, measured = self.collected, self._measured
        problem = problem_of(
            report, measured=measured, schedule=self.schedule, ran_well=self._ran_well
        )
        group = self.options.group
        others = None if group is None else group.others()
        if problem and measured and others and others.lost is not None and not others.failed:
            problem = None
            collected.note(f"the script ended with that of rank {others.lost}, which ended first")
        if problem is None and self.schedule.full:
            self._failed_later = self._failed_later or failure_after(report)
        if self._failed_later is not None:
            collected.note(str(self._failed_later))
        ended_measured = report.script is not None and report.exit_code == 0
        if ended_measured and "inspect" in collected.results and not self.schedule.full:
            collected.note(
                "the script reached its own end while it was measured, so numbers that it saved "
                "may differ by rounding from those of a run without launchscope"
            )
        try:
            collected.write_recording(self.target, self.schedule, self._exit_code)
        except OSError as error:
            raise cannot_write(self.directory, error) from None
        return problem

    @property
    def _measured(self) -> bool:
        return "timing" in self.collected.results or "inspect" in self.collected.results

    def _open_passes(self) -> list[PassInfo]:
        return [kind for kind in self._passes if self.collected.lacks(kind.name)]

    def _leave_side_stream(self) -> Reason | None:
        """Measure again without the side stream if something insists on the legacy one, for which
        torch's side streams do not wait: results and times would mean nothing."""
        results = self.collected.results
        legacy = any(getattr(result, "legacy_kernels", 0) for result in results.values())
        if self.collected.needs_legacy_stream or not legacy:
            return None
        self.collected.needs_legacy_stream = True
        for kind in self._passes:
            if kind.depends_on_stream:
                results.pop(kind.name, None)
        return Reason("legacy_stream_needed")

    def _why_again(self, report: ChildReport) -> Reason | None:
        """Why another run would give more; None if it would not."""
        open_ = self._worth_another_run(report)
        if report.step_gone is not None:
            return self._search_later(report.step_gone, open_) or report.other_step
        if not open_:
            return None
        names = [kind.name for kind in open_]
        if report.raised_in is not None and self._left_out is None:
            self._left_out = report.raised_in
            return Reason("suspected_pass", {"name": report.raised_in})
        if report.crashed_in is None and all(kind.part_of is not None for kind in open_):
            return Reason("smaller_part")
        broke = report.crashed_in or (report.done and next(reversed(report.failures), None))
        if broke:
            return Reason("pass_ended_process", {"name": broke, "names": listed(names)})
        # Where the work is spread over threads, fewer steps would not bring it into one.
        if report.script is None or report.failed or report.several_threads:
            return None
        return self._other_steps(report.script, open_)

    def _other_steps(self, script: ScriptEnded, open_: list[PassInfo]) -> Reason | None:
        """What the next run takes for a step, or how many of them, where this one saw too few."""
        schedule, found = self.schedule, self.collected.step
        if script.waiting:
            return Reason("forward_steps")
        if 0 < script.steps <= schedule.skip_steps:
            return None
        alone = found is not None and found.scope == "forward" and schedule.wait_for == "step"
        late = script.steps > schedule.warmup + schedule.skip_steps
        if alone and late and not self._measured:
            # They were taken for the step so late that none was left to measure.
            return self._step_from("forward")
        if found is not None and found.boundary == "optimizer" and schedule.step_from == "auto":
            # It takes many steps to know that they have no period. Now they are ended at once.
            return self._step_from("optimizer")
        if script.steps >= _SEEN_OFTEN:
            shorter = self._fitting(script.steps, script.searching, open_, script.optimizer_steps)
            if shorter is not None:
                self.schedule, self._fitted = shorter, (shorter, open_)
                return Reason("fewer_steps", {"steps": script.steps})
        if not script.searching or schedule.step_from != "auto":
            return None
        if script.optimizer_steps >= _SEEN_OFTEN:
            self.collected.note(
                "the training steps do not repeat one sequence of events, so a step is everything "
                "between two optimizer steps"
            )
            return self._step_from("optimizer")
        if script.forwards >= _SEEN_OFTEN and schedule.wait_for != "optimizer":
            self.collected.note("no training step was seen, so each forward counts as a step")
            return self._step_from("forward")
        return None

    def _step_from(self, source: Literal["forward", "optimizer"]) -> Reason:
        self.schedule = replace(self.schedule, step_from=source)
        return Reason("forward_steps" if source == "forward" else "optimizer_steps")

    def _search_later(self, gone: StepGone, open_: list[PassInfo]) -> Reason | None:
        """Have the next run find what the script does instead of the step that was found. Where it
        changes its step again and again, all passes fit into one."""
        if gone.instead == "marks":
            self.schedule, self._begin_after = replace(self.schedule, step_from="marker"), 0
            return None
        if self._begin_after and (shorter := self._fitting(gone.steps, False, open_, 0)):
            self.schedule = shorter
            return Reason("fewer_steps", {"steps": gone.steps})
        self._begin_after = max(gone.optimizer_steps, gone.instead == "training")
        return None

    def _worth_another_run(self, report: ChildReport) -> list[PassInfo]:
        open_ = [kind for kind in self._open_passes() if kind.worth_another_run]
        if self.collected.on_gpu is False:
            open_ = [kind for kind in open_ if kind.on_cpu]
        # What follows another pass runs in the same process as that one, or not at all.
        names = {kind.name for kind in open_}
        open_ = [kind for kind in open_ if kind.follows is None or kind.follows in names]
        # A part of the step is measured where the pass for all of it was tried and cannot; in a
        # script that ended early, more passes would see no more steps.
        results = {} if report.script is not None else self.collected.results
        unable = {
            name
            for name, result in results.items()
            if getattr(result, "status", None) in ("what_if", "blocked", "failed")
            and getattr(getattr(result, "refused", None), "part", None) != "forward"
        }
        return [kind for kind in open_ if kind.part_of is None or kind.part_of in unable]

    def _fitting(
        self, made: int, searching: bool, open_: list[PassInfo], optimizer_steps: int
    ) -> Schedule | None:
        """A schedule that fits into the steps that the script really makes; None if none does."""
        now = self.schedule
        made -= now.skip_steps
        planned = now.warmup + sum(kind.steps(now) for kind in open_)
        if planned <= made:
            # The next run has fewer passes to do and gets further, unless it was made already.
            return now if not searching and self._fitted != (now, open_) else None
        share = max(0.0, (made - 2) / max(1, planned))
        shorter = replace(now, warmup=min(now.warmup, max(3, int(now.warmup * share))))
        ends_at_optimizer = now.step_from in ("auto", "optimizer")
        if made <= _FEW and ends_at_optimizer and optimizer_steps >= _SEEN_OFTEN:
            shorter = replace(now, warmup=2, step_from="optimizer")
        for kind in PASSES.values():
            if kind.fewest_steps is not None:
                steps = kind.steps(now)
                fewer = min(steps, max(kind.fewest_steps, int(steps * share)))
                shorter = replace(shorter, **{kind.name: fewer})  # type: ignore[arg-type]
        return None if shorter == now else shorter

    def _run_child(self, to_its_end: bool, *, stand_in: bool) -> ChildReport:
        collected, passes = self.collected, [] if to_its_end else self._open_passes()
        collected.runs += 1
        folder = RunFolder(self.directory / f"run-{collected.runs}")
        # What several runs give has to be about the same step.
        schedule, step, limit = self.schedule, collected.step, self.options.timeout_s
        if step is not None and "optimizer" in step.period:
            schedule = replace(schedule, wait_for="optimizer")
        plan = Plan(
            target=self.target,
            passes=tuple(kind.name for kind in passes),
            schedule=schedule,
            measures=not to_its_end,
            rehearses=stand_in,
            side_stream=not collected.needs_legacy_stream,
            patience_s=Plan.patience_s if limit is None else limit / 2,
            begin_after=self._begin_after,
            may_train=step is None or step.scope != "forward",
            strategy=self.options.strategy,
            earlier=to_plain(collected.results),
            tree=self.options.tree,
        )
        time_left = TimeLeft(passes, self.schedule)
        report = self._watch.carry_out(plan, folder, self.options.process, time_left)
        self._return_to_start()
        return report

    def _return_to_start(self) -> None:
        """Files go where they were meant to if the script has removed its folder and made it again:
        that is another one, of the same name."""
        try:
            os.getcwd()
        except OSError:
            with contextlib.suppress(OSError):
                os.chdir(self._start)
