"""Runs one pass after the other over the steps of the script, and puts results on disk.

Whatever a pass raises becomes a result or a failure of that pass; the script never sees it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

from launchscope.model import Reason, StepPart
from launchscope.runner.child.clock import clock
from launchscope.runner.child.passes import CAPTURE_LIMIT_S, AnyPass, Context, Skip, all_passes
from launchscope.runner.child.reasons import ReasonError, reason_of
from launchscope.runner.child.torch_types import Value
from launchscope.runner.protocol.events import (
    EnoughMeasured,
    Note,
    PassEnded,
    PassFailed,
    PassProgress,
    PassSkipped,
    PassStarted,
)

P = ParamSpec("P")
R = TypeVar("R")

# A pass gets its own time, plus this many times what its steps took in the warm-up.
_PASS_SLOWDOWN = 50.0
# What a pass changes may make the script compile again, which takes minutes for a large model.
_COMPILE_S = 600.0
_PROGRESS_EVERY_S = 1.0
# A pass may report no progress for so long, where its steps should pay for nothing but the pass.
_UNREPORTED_S = 20.0
_UNUSABLE = (
    "the capture failed, and CUDA does not work in this process anymore: start another one, and "
    "call measure() with replay=False"
)


def _on_device_of_step(method: Callable[P, R]) -> Callable[P, R]:
    """Passes record events, wait and capture on the current device."""

    @functools.wraps(method)
    def on_device(*args: P.args, **kwargs: P.kwargs) -> R:
        with args[0]._context.on_device_of_step():  # type: ignore[attr-defined]
            return method(*args, **kwargs)

    return on_device


class PassRunner:
    """The queue of passes of one process.

    `on_done` is called when the queue is empty, `on_poisoned` after a failed capture: its step was
    not computed, and CUDA may not work. `on_pass` is called before a pass begins, with
    whether it only needs the boundaries of steps. While `waits()`, no pass captures and nothing is
    done.
    """

    def __init__(
        self,
        context: Context,
        names: tuple[str, ...],
        seconds_per_step: float,
        first_step: int,
        on_done: Callable[[], None],
        on_poisoned: Callable[[], None],
        on_pass: Callable[[bool], None],
        waits: Callable[[], bool],
    ):
        self._context = context
        self._nvtx = context.nvtx
        self._with_ranges = context.nvtx.available  # else steps do not pay for ranges
        self._step_s = seconds_per_step
        self._on_done = on_done
        self._on_poisoned = on_poisoned
        self._on_pass = on_pass
        self._waits = waits
        self.is_waiting = False
        self._pass: AnyPass | None = None
        self._pass_began = 0.0
        self._first_step = 0  # of the pass
        self._progress_at = 0
        self._in_step = False
        self._captured: str | None = None  # the last pass that captured
        self._apart: dict[str, Skip] = {}  # passes that other ranks cannot do
        self._nothing_measured = True  # no pass is over
        self._steps_done = first_step  # without those that `_direct` counts
        self._direct: AnyPass | None = None  # the pass that the hooks call without us
        self._queue = self._choose(names)

    def _choose(self, names: tuple[str, ...]) -> list[AnyPass]:
        """The passes of the plan that can run on this machine."""
        context = self._context
        return [
            kind()
            for kind in all_passes()
            if kind.name in names
            and (context.on_gpu or kind.on_cpu)
            and kind.steps(context.schedule) > 0
        ]

    @property
    def steps_done(self) -> int:
        return self._steps_done + (0 if self._direct is None else self._direct.seen)

    @_on_device_of_step
    def begin_step(self) -> None:
        current = self._pass
        if current is None:
            return
        if self._with_ranges:
            if self._in_step:  # begun, never ended: a step that the script broke off
                self._nvtx.pop()
            if not self._nvtx.push_prepared(self.steps_done - self._first_step):
                self._nvtx.push(_step_range(self.steps_done, current))
        self._in_step = True
        if current.captures:
            self._context.ranks.begin_step()
        try:
            current.begin()
        except Exception as error:
            self._failed(error)

    @_on_device_of_step
    def part_ended(self, part: StepPart) -> None:
        """The forward part of a step, or its backward part, is over."""
        current = self._pass
        if current is not None and self._in_step:
            try:
                current.part_ended(part)
            except Exception as error:
                self._failed(error)

    @_on_device_of_step
    def end_step(self) -> None:
        self._steps_done += self._direct is None
        current = self._pass
        if current is None:
            # The pass before failed in the middle of its steps, or the next one waits.
            if self._queue or self.is_waiting:
                self.next_pass()
            return
        done = False
        try:
            done = current.end()
        except Exception as error:
            self._failed(error)
        if self.steps_done >= self._progress_at and not done:
            self._report_progress(current)
        if self._in_step:
            self._in_step = False
            if self._with_ranges:
                self._nvtx.pop()
        if done:
            self._close(complete=True)
            self.next_pass()

    def _report_progress(self, current: AnyPass) -> None:
        """About once a second in long passes; short ones never come this far."""
        so_far, steps = clock.perf_counter() - self._pass_began, self.steps_done - self._first_step
        self._progress_at = self.steps_done + _steps_until_progress(so_far / steps)
        if so_far >= _PROGRESS_EVERY_S:
            total = current.steps(self._context.schedule)
            self._context.folder.emit(PassProgress(current.name, steps, total))

    @_on_device_of_step
    def next_pass(self) -> None:
        """Start the next pass that has something to do; `on_done` if there is none."""
        context, folder = self._context, self._context.folder
        while self._queue and self._pass is None:
            if folder.error is not None:  # no further result could be kept
                self._queue = []
                break
            entry = self._queue[0]
            if entry.captures and self._must_wait():
                return
            if entry.follows is not None and entry.follows.name not in context.results:
                context.ranks.cannot(entry.name)
                del self._queue[0]
                continue
            if entry.captures and not context.ranks.warm(self.steps_done):
                return
            if self._skips(entry):
                if entry.captures:
                    context.ranks.cannot(entry.name)
                del self._queue[0]
                continue
            if entry.captures and not self._meets(entry):
                return
            if not any(other.worth_another_run for other in self._queue):
                folder.emit(EnoughMeasured())
            steps = entry.steps(context.schedule)
            folder.emit(PassStarted(entry.name, steps, self._limit_s(entry, steps)))
            if folder.error is None:
                self._start(entry, steps)
        if self._pass is None and not self._must_wait():
            self._on_done()

    def _limit_s(self, entry: AnyPass, steps: int) -> float | None:
        fixed = entry.time_limit_s or (CAPTURE_LIMIT_S if entry.captures else None)
        if fixed is None:
            return None
        fixed = max(fixed, _COMPILE_S if self._context.boundary.compiled else 0.0)
        return fixed + _PASS_SLOWDOWN * steps * self._step_s

    def _skips(self, entry: AnyPass) -> bool:
        """Whether a pass has nothing to do in this script; then that is on disk."""
        context, folder = self._context, self._context.folder
        skip = entry.skip(context)
        if entry.captures and not (entry.with_ranks or context.ranks.alone):
            skip = skip or Skip("skipped", Reason("one_rank_only"))
        if skip is None:
            skip = self._apart.pop(entry.name, None)
        if skip is None:
            return False
        result = entry.skipped(context, skip)
        if result is not None:
            folder.write(f"pass-{entry.name}", result)
        folder.emit(PassSkipped(entry.name, skip.reason))
        return True

    def _meets(self, entry: AnyPass) -> bool:
        """Whether all ranks are at the same step; if they cannot, the pass is left out."""
        context, steps = self._context, entry.steps(self._context.schedule)
        try:
            fewest = context.ranks.meet(entry.name, steps)
        except ReasonError as error:
            self._apart[entry.name] = Skip("skipped", error.reason)
            self._skips(entry)
            del self._queue[0]
            self.next_pass()
            return False
        if fewest is not None and fewest < steps:
            own = getattr(context.schedule, entry.name)
            context.schedule = replace(context.schedule, **{entry.name: own - steps + fewest})
        return fewest is not None

    def _must_wait(self) -> bool:
        waited, self.is_waiting = self.is_waiting, self._waits()
        if self.is_waiting and not waited:
            self._on_pass(False)
            if not self._queue:
                self._context.folder.emit(EnoughMeasured())
        return self.is_waiting

    def _start(self, entry: AnyPass, steps: int) -> None:
        self._captured = entry.name if entry.captures else self._captured
        # How long steps of other passes take is not known before the first is over.
        known = entry.boundaries_only
        self._first_step = first = self.steps_done
        self._progress_at = first + (_steps_until_progress(self._step_s) if known else 1)
        self._nvtx.prepare([_step_range(first + i, entry) for i in range(steps)])
        self._nvtx.push(f"pass:{entry.name}")
        self._on_pass(entry.boundaries_only)
        self._pass, self._pass_began = entry, clock.perf_counter()
        self._queue = self._queue[1:]
        try:
            entry.start(self._context)
        except Exception as error:
            self._failed(error)
        boundary = self._context.hooks.boundary_hooks
        quick = steps * self._context.step_s < _UNREPORTED_S and not self._with_ranges
        quick = quick and self._context.device is None  # else it has to be made the current one
        if entry.direct and quick and boundary is not None and self._pass is entry:
            boundary.begin, boundary.end = entry.begin, entry.end
            self._direct = entry

    @_on_device_of_step
    def pass_over(self) -> None:
        """The last step of a pass that the hooks call directly is over."""
        self._close(complete=True)
        self.next_pass()

    @_on_device_of_step
    def pass_failed(self, error: Exception) -> bool:
        """An error of such a pass; False if no such pass runs."""
        if self._direct is None:
            return False
        self._failed(error)
        return True

    def _leave_pass(self) -> None:
        """No step is the pass's anymore."""
        self._steps_done, self._pass, self._direct = self.steps_done, None, None
        boundary = self._context.hooks.boundary_hooks
        if boundary is not None:
            boundary.begin, boundary.end = self.begin_step, self.end_step

    def _close(self, complete: bool) -> None:
        current = self._pass
        assert current is not None
        self._nothing_measured = False
        try:
            result = current.finish(complete)
        except Exception as error:
            self._failed(error)
            return
        self._leave_pass()
        self._nvtx.pop()
        self._store(current.name, result)
        seconds = clock.perf_counter() - self._pass_began
        self._context.folder.emit(PassEnded(current.name, seconds))

    def _failed(self, error: Exception) -> None:
        """End the pass with an error of its own."""
        current = self._pass
        assert current is not None
        self._leave_pass()
        self._nothing_measured = False
        result = None
        with contextlib.suppress(Exception):
            result = current.failed(error)
        self._store(current.name, result)
        self._context.folder.emit(PassFailed(current.name, reason_of(error)))
        self._nvtx.pop()
        if current.captures:
            self._capture_failed(current)
            self._on_poisoned()

    def _capture_failed(self, current: AnyPass) -> None:
        """Nothing more is measured in this process."""
        context, queue = self._context, self._queue
        self._queue = []
        context.ranks.refuse()
        with contextlib.suppress(Exception):
            if not context.own_process and not current.undo():
                context.folder.emit(Note(_UNUSABLE))
            # Smaller parts of the step that would fail in the same way need no other process.
            for entry in queue:
                if entry.part_of is not None and not self._skips(entry):
                    break

    def _store(self, name: str, result: Value | None) -> None:
        if result is not None:
            self._context.folder.write(f"pass-{name}", result)
            self._context.results[name] = result

    def abandon(self, *, measured: bool = False) -> bool:
        """Forget the first pass and the others, if it is still running; False if it is not.

        What a capture has begun cannot be forgotten; the results of other passes can, if
        `measured`, and it is the caller that removes them.
        """
        current = self._pass
        if self._captured is not None:
            return False
        if not measured and (current is None or not self._nothing_measured):
            return False
        self._pass, self._queue = None, []
        if current is not None:
            self._take_out(current)
        return True

    def _take_out(self, current: AnyPass) -> None:
        """Have a pass take back what it has put in; what it has measured is lost."""
        with contextlib.suppress(Exception):
            current.finish(complete=False)
        if self._in_step and self._with_ranges:
            self._nvtx.pop()
        self._nvtx.pop()

    @property
    def has_results(self) -> bool:
        return bool(self._context.results)

    @property
    def suspect(self) -> str | None:
        """The current pass, if it changes how the script runs, or the one that captured."""
        current = self._pass
        invasive = current is not None and not current.boundaries_only
        return current.name if current is not None and invasive else self._captured

    @_on_device_of_step
    def takes_blame(self, error: BaseException) -> bool:
        """True if an error that left the script comes from the current pass; it is on disk then."""
        if self._pass is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return False
        result = self._pass.failed_inside_step(error)
        if result is None:
            return False
        self._store(self._pass.name, result)
        self._context.folder.emit(PassFailed(self._pass.name, reason_of(error)))
        if self._pass.captures:
            self._capture_failed(self._pass)
        self._pass, self._queue = None, []
        return True

    @_on_device_of_step
    def cut_short(self) -> None:
        """The script is over: what the current pass has by now is its result."""
        if self._pass is not None:
            with contextlib.suppress(Exception):
                self._close(complete=False)
        self._queue = []


def _step_range(number: int, entry: AnyPass) -> str:
    return f"step#{number} {entry.name}"


def _steps_until_progress(seconds_per_step: float) -> int:
    """Counted in steps, because no step pays for reading the clock."""
    return max(1, round(_PROGRESS_EVERY_S / max(seconds_per_step, 1e-6)))
