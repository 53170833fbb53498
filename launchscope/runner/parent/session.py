"""The parent: runs the script as often as the passes need, and collects one Recording.

Whatever happens to a child, what it had written is kept: `recording.json` is always written.
"""

from __future__ import annotations

import contextlib
import copy
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
from launchscope.runner.protocol.events import FilesLoaded, ScriptEnded, ScriptFailed
from launchscope.runner.protocol.folder import Plan, SourceTree
from launchscope.runner.protocol.passes import PASSES, PassInfo
from launchscope.runner.protocol.plain import to_plain
from launchscope.wording import listed, plural

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
    """`directory` holds recording.json even when there is a problem. `failed_later`: how a script
    that was let finish failed once it was measured, which is no problem of the run."""

    directory: Path
    problem: LaunchscopeError | None
    interrupted: bool
    exit_code: int
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
        self._plan: Plan | None = None  # of the last run
        self._ran_well = False  # in a run before the last
        self._may_train = True
        self._left_out = False  # a pass during which the script failed
        self._failed_later: ScriptError | None = None
        self._exit_code: int | None = None
        self._start = working_directory()
        self._watch = ChildWatch(self._on_event, self.options.timeout_s, self.options.group)

    def run(self) -> Outcome:
        with self._watch.signals:
            report = self._measure()
            if self.schedule.full and self._goes_on(report):
                self._run_to_its_end(report)
            problem = self._conclude(report)
        number = report.signal or self._watch.signals.caught
        code = problem.exit_code if problem is not None else 0
        if number is not None:  # as a shell gives it
            code = 128 + number
        return Outcome(
            self.directory,
            problem,
            number is not None,
            code,
            tuple(self.collected.loaded),
            self._failed_later,
            report.script_error,
        )

    def _measure(self) -> ChildReport:
        """Run the script until no run would give more; the report of the last run."""
        report, again = ChildReport(), None
        while not self._is_signaled():
            self._announce(again)
            report = self._run_child(self._next_plan())
            again = self._take(report)
            if again is None:
                break
        return report

    def _run_to_its_end(self, last: ChildReport) -> None:
        """One more run, in which nothing is measured; it does not count toward --max-runs."""
        self._announce(Reason("to_its_end"))
        plan = replace(self._next_plan(), passes=(), measures=False, rehearses=last.named_cuda)
        report = self._run_child(plan)
        self._failed_later = failure_after(report)
        last.signal, last.script_error = report.signal, report.script_error

    def _on_event(self, event: ProgressEvent) -> None:
        self.on_progress(event)
        if event.kind == "pass" and event.name == "replayed_loop" and event.done == 0:
            self._write_results_so_far()
            self.on_progress(ProgressEvent("results"))

    def _write_results_so_far(self) -> None:
        """The recording, without the loop that the child measures meanwhile."""
        collected = copy.deepcopy(self.collected)
        with contextlib.suppress(OSError):
            collected.take(ChildReport(self._folder().path, on_gpu=True))
            collected.write_recording(self.target, self.schedule, None)

    def _announce(self, again: Reason | None) -> None:
        # Its last line of output may be missing.
        text = f"running {self.target.name} until its step is measured"
        if again is not None:
            text = f"running the script again: {reason_text(again)}"
            self.collected.note(f"the script was run again: {reason_text(again)}")
        self.on_progress(ProgressEvent("run", self.target.name, text=text))

    def _take(self, report: ChildReport) -> Reason | None:
        """Collect what a run has measured; why there is another one."""
        self.collected.take(report)
        again = self._agreed(self._why_again(report), report.cut_short)
        self._ran_well = self._ran_well or not (report.exit_code or report.failed)
        return again

    def _agreed(self, again: Reason | None, cut_short: bool) -> Reason | None:
        """Why there is another run within --max-runs, on all ranks; None if one of them cannot."""
        group, most = self.options.group, self.options.max_runs
        may = self.collected.runs < most and not cut_short
        refusal = f"which takes one more run of the script (--max-runs is {most})"
        if group is not None:
            wish: Wish = "over" if not may else "able" if again is None else "again"
            if group.run_again(wish, self._is_signaled):
                return again or Reason("another_rank")
            refusal = "and another rank cannot run once more" if may else refusal
        elif may:
            return again
        if again is not None:
            why = reason_text(again)
            self.collected.note(f"not everything was measured: {why}, {refusal}")
        return None

    def _is_signaled(self) -> bool:
        return self._watch.signals.caught is not None

    def _goes_on(self, report: ChildReport) -> bool:
        """Whether the script runs by itself now, up to its own end, on all ranks."""
        goes_on = report.was_stopped or (self._measured and report.exit_code == 0)
        if report.cut_short or self._watch.is_over_time:
            goes_on = False
        elif report.lost_rank is not None and report.killed:
            goes_on = False  # without that rank it would have waited for ever
        elif not os.path.isdir(self._start):
            self.collected.note("the folder of the script is gone, so it was not run to its end")
            goes_on = False
        group = self.options.group
        if group is not None:
            wish: Wish = "again" if goes_on else "over"
            return group.run_again(wish, self._is_signaled, "full")
        return goes_on and not self._is_signaled()

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
            loop = collected.results.get("replayed_loop")
            if loop is not None and loop.taken_back:
                taken_back = plural(loop.taken_back, "step")
                collected.note(
                    f"what it saved lacks {taken_back} that were replayed and taken back"
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

    # ------------------------------------------------------------- whether to run again

    def _why_again(self, report: ChildReport) -> Reason | None:
        """Why another run would give more; None if it would not, as one with the same plan."""
        if report.cut_short:
            return None
        again = self._leave_side_stream() or self._reason_of(report)
        return None if self._next_plan() == self._plan else again

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

    def _reason_of(self, report: ChildReport) -> Reason | None:
        """What the last run leaves to do; changes the schedule where that helps."""
        open_ = self._worth_another_run(report)
        if not open_:
            return None
        if report.raised_in is not None and not self._left_out:
            self._left_out = True
            return Reason("suspected_pass", {"name": report.raised_in})
        if report.crashed_in is None and all(kind.part_of is not None for kind in open_):
            return Reason("smaller_part")
        broke = report.crashed_in or (report.done and next(reversed(report.failures), None))
        if broke:
            names = listed([kind.name for kind in open_])
            return Reason("pass_ended_process", {"name": broke, "names": names})
        if report.script is None or report.failed:
            return None
        return self._too_few_steps(report.script, open_)

    def _too_few_steps(self, script: ScriptEnded, open_: list[PassInfo]) -> Reason | None:
        """What the next run takes for a step, or how many of them, where this one saw too few."""
        schedule, found = self.schedule, self.collected.step
        automatic = schedule.step_from == "auto"
        if script.waiting:
            self.collected.note("no optimizer stepped, so the verdict is about the forward alone")
            self._may_train = False
            return Reason("forward_steps")
        if 0 < script.steps <= schedule.skip_steps:
            return None
        if found is not None and not self._measured:
            alone = found.scope == "forward" and schedule.wait_for == "step"
            if alone and script.steps > schedule.warmup + schedule.skip_steps:
                # They were taken for the step so late that none was left to measure.
                return self._step_from("forward")
        if found is not None and found.boundary == "optimizer" and automatic:
            # It takes many steps to know that they have no period. Now they are ended at once.
            return self._step_from("optimizer")
        if script.steps >= _SEEN_OFTEN:
            shorter = self._fitting(script.steps, script.searching, open_, script.optimizer_steps)
            if shorter is not None:
                self.schedule = shorter
                return Reason("fewer_steps", {"steps": script.steps})
        return self._any_step(script) if script.searching and automatic else None

    def _any_step(self, script: ScriptEnded) -> Reason | None:
        """What is a step where none repeats."""
        if script.optimizer_steps >= _SEEN_OFTEN:
            self.collected.note(
                "the training steps do not repeat one sequence of events, so a step is everything "
                "between two optimizer steps"
            )
            return self._step_from("optimizer")
        if script.forwards >= _SEEN_OFTEN and self.schedule.wait_for != "optimizer":
            self.collected.note("no training step was seen, so each forward counts as a step")
            return self._step_from("forward")
        return None

    def _step_from(self, source: Literal["forward", "optimizer"]) -> Reason:
        self.schedule = replace(self.schedule, step_from=source)
        return Reason("forward_steps" if source == "forward" else "optimizer_steps")

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
            # The next run has fewer passes to do and gets further.
            return None if searching else now
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

    # ---------------------------------------------------------------------- one run

    def _next_plan(self) -> Plan:
        # What several runs give has to be about the same step.
        collected, schedule, limit = self.collected, self.schedule, self.options.timeout_s
        step = collected.step
        if step is not None and "optimizer" in step.period:
            schedule = replace(schedule, wait_for="optimizer")
        return Plan(
            target=self.target,
            passes=tuple(kind.name for kind in self._open_passes()),
            schedule=schedule,
            side_stream=not collected.needs_legacy_stream,
            patience_s=Plan.patience_s if limit is None else limit / 2,
            may_train=self._may_train and (step is None or step.scope != "forward"),
            strategy=self.options.strategy,
            earlier=to_plain(collected.results),
            tree=self.options.tree,
        )

    def _folder(self) -> RunFolder:
        return RunFolder(self.directory / f"run-{self.collected.runs}")

    def _run_child(self, plan: Plan) -> ChildReport:
        self._plan = plan
        self.collected.runs += 1
        folder = self._folder()
        try:
            report = self._watch.carry_out(plan, folder, self.options.process)
        except OSError as error:
            return ChildReport(folder.path, write_error=error)
        # Another folder of the same name may be there now: files go where they were meant to.
        with contextlib.suppress(OSError):
            os.chdir(self._start)
        self._exit_code = report.exit_code
        return report
