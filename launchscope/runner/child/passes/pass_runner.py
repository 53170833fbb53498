"""Runs one pass after the other over the steps of the script, and puts results on disk.

Whatever a pass raises becomes a result or a failure of that pass; the script never sees it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import ParamSpec, TypeVar

from launchscope.model import Reason, StepPart
from launchscope.runner.child.facts.reasons import ReasonError, reason_of
from launchscope.runner.child.facts.torch_types import Value
from launchscope.runner.child.passes import AnyPass, Context, Skip, all_passes
from launchscope.runner.protocol import events

P = ParamSpec("P")
R = TypeVar("R")

# A pass gets its own time, plus this many times what its steps took in the warm-up.
_PASS_SLOWDOWN = 50.0
# A graph that hangs ends no step; what the script does between steps counts as well.
_CAPTURE_LIMIT_S = 300.0
# What a pass changes may make the script compile again, which takes minutes for a large model.
_COMPILE_S = 600.0
_PROGRESS_EVERY_S = 1.0
# A pass may report no progress for so long, where its steps should pay for nothing but the pass.
_UNREPORTED_S = 20.0


class PassRunner:
    """The queue of passes of one process.

    `on_done` is called when the queue is empty, and `on_broken` after a pass that broke, which is
    to end the process. `on_pass` is called before a pass begins, with whether it only needs the
    boundaries of steps.
    """

    _context: Context  # set by `start`

    def __init__(
        self,
        names: tuple[str, ...],
        on_done: Callable[[], None],
        on_broken: Callable[[], None],
        on_pass: Callable[[bool], None],
    ):
        self._names = names
        self._on_done, self._on_broken, self._on_pass = on_done, on_broken, on_pass
        self._pass: AnyPass | None = None
        self._began = self._reported = 0.0  # the pass, and its progress
        self._first_step = 0  # of the pass
        self._in_step = False
        self._captured: str | None = None  # the last pass that captured
        self._steps_done = 0  # without those that `_direct` counts
        self._direct: AnyPass | None = None  # the pass that the hooks call without us
        self.queue: list[AnyPass] = []  # set before `start`: these, whatever the names say

    def start(self, context: Context, first_step: int) -> None:
        """The step is known: begin with the first pass."""
        self._context, self._folder, self._nvtx = context, context.folder, context.nvtx
        self._steps_done = first_step
        self.queue = self.queue or [
            kind()
            for kind in all_passes()
            if kind.name in self._names
            and (context.on_gpu or kind.info().on_cpu)
            and kind.steps(context.schedule) > 0
        ]
        self.next_pass()

    def _try(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Have the pass do something, on the device of the step. An error of it ends the pass."""
        try:
            with self._context.on_device_of_step():
                return call(*args, **kwargs)
        except Exception as error:
            self.pass_failed(error)
            return None

    # ----------------------------------------------------------------------------- steps

    @property
    def steps_done(self) -> int:
        return self._steps_done + (0 if self._direct is None else self._direct.seen)

    def begin_step(self) -> None:
        current = self._pass
        if current is None:
            return
        if self._in_step:  # begun, never ended: a step that the script broke off
            self._nvtx.pop()
        self._nvtx.push(f"step#{self.steps_done} {current.name}")
        self._in_step = True
        if current.captures:
            self._context.ranks.begin_step()
        self._try(current.begin)

    def part_ended(self, part: StepPart) -> None:
        """The forward part of a step, or its backward part, is over."""
        if self._pass is not None and self._in_step:
            self._try(self._pass.part_ended, part)

    def end_step(self) -> None:
        self._steps_done += self._direct is None
        current = self._pass
        if current is None:  # the one before failed within its steps, or the next waits for ranks
            self.next_pass()
            return
        done = self._try(current.end)
        if done is False:
            self._report_progress(current)
        if self._in_step:
            self._in_step = False
            self._nvtx.pop()
        if done:
            self.pass_over()

    def _report_progress(self, current: AnyPass) -> None:
        now = perf_counter()
        if now - self._reported >= _PROGRESS_EVERY_S:
            self._reported, steps = now, self.steps_done - self._first_step
            total = current.steps(self._context.schedule)
            self._folder.emit(events.PassProgress(current.name, steps, total))

    # ---------------------------------------------------------------------- the next pass

    def next_pass(self) -> None:
        """Start the next pass that has something to do; `on_done` if there is none."""
        context = self._context
        while self.queue and self._pass is None and self._folder.error is None:
            entry = self.queue[0]
            if entry.captures and not context.ranks.warm(self.steps_done):
                return
            follows = entry.info().follows in (None, *context.results)
            skip = self._skip(entry) if follows else None
            if entry.with_ranks and not context.ranks.alone:
                try:
                    if not self._meets(entry, can=follows and skip is None):
                        return
                except ReasonError as error:
                    skip = skip or Skip("skipped", error.reason)
            del self.queue[0]
            if follows and skip is not None:
                self._leave_out(entry, skip)
            elif follows:
                self._start(entry)
        if self._folder.error is not None:  # no further result could be kept
            self.queue = []
        if self._pass is None:
            self._on_done()

    def _skip(self, entry: AnyPass) -> Skip | None:
        """Why a pass has nothing to do in this script; None if it has."""
        skip = entry.skip(self._context)
        if skip is None and entry.captures and not (entry.with_ranks or self._context.ranks.alone):
            return Skip("skipped", Reason("one_rank_only"))
        return skip

    def _leave_out(self, entry: AnyPass, skip: Skip) -> None:
        result = entry.skipped(self._context, skip)
        if result is not None:
            self._folder.write(f"pass-{entry.name}", result)
        self._folder.emit(events.PassSkipped(entry.name, skip.reason))

    def _meets(self, entry: AnyPass, *, can: bool) -> bool:
        """Whether all ranks are at the same step; raises ReasonError if one cannot do the pass."""
        context, steps = self._context, entry.steps(self._context.schedule)
        with context.on_device_of_step():
            fewest = context.ranks.meet(entry.name, steps if can else None)
        if fewest is not None and fewest < steps:
            own = getattr(context.schedule, entry.name)
            context.schedule = replace(context.schedule, **{entry.name: own - steps + fewest})
        return fewest is not None

    def _start(self, entry: AnyPass) -> None:
        context = self._context
        if not any(other.info().worth_another_run for other in (entry, *self.queue)):
            self._folder.emit(events.EnoughMeasured())
        steps = entry.steps(context.schedule)
        self._folder.emit(events.PassStarted(entry.name, steps, self._limit_s(entry, steps)))
        if self._folder.error is not None:
            return
        self._captured = entry.name if entry.captures else self._captured
        self._first_step = self.steps_done
        self._nvtx.push(f"pass:{entry.name}")
        self._on_pass(entry.boundaries_only)
        self._pass, self._began = entry, perf_counter()
        self._reported = self._began
        self._try(entry.start, context)
        boundary = context.hooks.boundary_hooks
        quick = steps * context.step_s < _UNREPORTED_S and not self._nvtx.available
        quick = quick and context.device is None  # else it has to be made the current one
        if entry.direct and quick and boundary is not None and self._pass is entry:
            boundary.begin, boundary.end = entry.begin, entry.end
            self._direct = entry

    def _limit_s(self, entry: AnyPass, steps: int) -> float | None:
        fixed = entry.time_limit_s or (_CAPTURE_LIMIT_S if entry.captures else None)
        if fixed is None:
            return None
        fixed = max(fixed, _COMPILE_S if self._context.boundary.compiled else 0.0)
        return fixed + _PASS_SLOWDOWN * steps * self._context.step_s

    # ------------------------------------------------------------------- the end of a pass

    def pass_over(self) -> None:
        """The last step of the pass is over; also of one that the hooks call directly."""
        self._close(complete=True)
        self.next_pass()

    def _close(self, complete: bool) -> None:
        current = self._pass
        assert current is not None
        result = self._try(current.finish, complete)
        if self._pass is current:  # it has not failed
            self._leave_pass()
            self._store(current.name, result)
            seconds = perf_counter() - self._began
            self._folder.emit(events.PassEnded(current.name, seconds))

    def _leave_pass(self) -> None:
        """No step is the pass's anymore."""
        self._steps_done, self._pass, self._direct = self.steps_done, None, None
        self._nvtx.pop()
        boundary = self._context.hooks.boundary_hooks
        if boundary is not None:
            boundary.begin, boundary.end = self.begin_step, self.end_step

    def pass_failed(self, error: Exception) -> None:
        """End the pass with an error of its own. If it broke something, as a capture does, the
        remaining passes need another process; in the process of a caller they go on here."""
        current, context = self._pass, self._context
        assert current is not None
        self._leave_pass()
        result = None
        with contextlib.suppress(Exception), context.on_device_of_step():
            result = current.failed(error)
        self._store_failure(current, result, error)
        broke = context.own_process and not isinstance(error, ReasonError)
        if current.captures or (broke and self.queue):
            self.queue = []
            self._on_broken()

    def direct_pass_failed(self, error: Exception) -> bool:
        """An error of a pass that the hooks call directly; False if no such pass runs."""
        runs = self._direct is not None
        if runs:
            self.pass_failed(error)
        return runs

    def takes_blame(self, error: BaseException) -> bool:
        """True if an error that left the script comes from the current pass; it is on disk then."""
        current = self._pass
        if current is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return False
        with self._context.on_device_of_step():
            result = current.failed_inside_step(error)
        if result is None:
            return False
        self._store_failure(current, result, error)
        self._pass, self.queue = None, []
        return True

    def _store_failure(self, current: AnyPass, result: Value | None, error: BaseException) -> None:
        context = self._context
        self._store(current.name, result)
        self._folder.emit(events.PassFailed(current.name, reason_of(error)))
        if not current.captures:
            return
        context.ranks.refuse()
        with contextlib.suppress(Exception), context.on_device_of_step():
            if not context.own_process and not current.undo():
                self._folder.emit(events.Remark("unusable"))
            # Smaller parts of the step that would fail in the same way need no other process.
            for entry in self.queue:
                skip = self._skip(entry) if entry.info().part_of is not None else None
                if skip is not None:
                    self._leave_out(entry, skip)

    def _store(self, name: str, result: Value | None) -> None:
        if result is not None:
            self._folder.write(f"pass-{name}", result)
            self._context.results[name] = result

    def cut_short(self) -> None:
        """The script is over: what the current pass has by now is its result. A capture that was
        broken off has none, and no CUDA call is safe."""
        self.queue = []
        if self._pass is not None and not self._pass.is_capturing:
            with contextlib.suppress(Exception):
                self._close(complete=False)

    # ------------------------------------------------------------------------- so far

    @property
    def suspect(self) -> str | None:
        """The current pass, if it changes how the script runs, or the one that captured."""
        current = self._pass
        return current.name if current and not current.boundaries_only else self._captured
