"""Runs one pass after the other over the steps it is told of, and puts results on disk.

Whatever a pass raises becomes a result or a failure of that pass; the script never sees it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from launchscope.model import PassFailure, StepPart
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import Pass, all_passes
from launchscope.runner.protocol.folder import to_plain

# A pass gets its own time, plus this many times what its steps took in the warm-up.
_PASS_SLOWDOWN = 50.0
_NEWS_EVERY_S = 1.0


class PassRunner:
    """The queue of passes of one process.

    `on_done` is called when the queue is empty, `on_poisoned` after a capture failed: no
    CUDA call is safe from then on. `on_pass` is called before a pass begins, with whether it
    wants the ends of steps only.
    """

    def __init__(
        self,
        context: Context,
        names: tuple[str, ...],
        allow_captures: bool,
        seconds_per_step: float,
        first_step: int,
        on_done: Callable[[], None],
        on_poisoned: Callable[[], None],
        on_pass: Callable[[bool], None],
    ):
        self._context = context
        self._nvtx = context.nvtx
        self._seen = context.nvtx.available  # else steps do not pay for ranges
        self._step_s = seconds_per_step
        self._on_done = on_done
        self._on_poisoned = on_poisoned
        self._on_pass = on_pass
        self._pass: Pass | None = None
        self._pass_began = 0.0
        self._pass_steps = 0
        self._news_at = 0
        self._in_step = False
        self._untouched = True  # no pass is over
        self.steps_done = first_step
        self._queue = self._choose(names, allow_captures)

    def _choose(self, names: tuple[str, ...], allow_captures: bool) -> list[Pass]:
        """Passes that this process can run; the others are deferred to another process.

        Compiled code stays eager once a dispatch mode has run it, so such passes do not
        share a process with the measuring ones. Captures wait for everything before them.
        """
        context = self._context
        chosen: list[Pass] = []
        deferred: list[str] = []
        for kind in all_passes():
            entry = kind()
            fits = entry.on_gpu if context.on_gpu else entry.on_cpu
            if entry.name not in names or not fits or entry.steps(context) <= 0:
                continue
            mixes = any(entry.runs_eagerly != other.runs_eagerly for other in chosen)
            apart = context.boundary.compiled and context.on_gpu and mixes
            if apart or (entry.captures and (deferred or not allow_captures)):
                deferred.append(entry.name)
            else:
                chosen.append(entry)
        context.folder.tell("deferred", names=deferred)
        return chosen

    # ---------------------------------------------------------------------------- steps

    def begin_step(self) -> None:
        current = self._pass
        if current is None:
            return
        if self._seen:
            if self._in_step:  # begun, never ended: a step that the script broke off
                self._nvtx.pop()
            if not self._nvtx.push_prepared(self._pass_steps):
                self._nvtx.push(_step_range(self.steps_done, current))
        self._in_step = True
        try:
            current.begin()
        except Exception as error:
            self._failed(error)

    def part_ended(self, part: StepPart) -> None:
        """The forward part of a step, or its backward part, is over."""
        current = self._pass
        if current is not None and self._in_step:
            self._guarded(lambda: current.part_ended(part))

    def end_step(self) -> None:
        self.steps_done += 1
        current = self._pass
        if current is None:
            if self._queue:  # the pass before failed in the middle of its steps
                self.next_pass()
            return
        done = False
        try:
            done = current.end()
        except Exception as error:
            self._failed(error)
        self._pass_steps += 1
        if self._pass_steps >= self._news_at and not done:
            self._report_progress(current)
        if self._in_step:
            self._in_step = False
            if self._seen:
                self._nvtx.pop()
        if done:
            self._close(complete=True)
            self.next_pass()

    def _report_progress(self, current: Pass) -> None:
        """Tell of long passes about once a second; short ones never come this far."""
        so_far = time.perf_counter() - self._pass_began
        self._news_at = self._pass_steps + _steps_until_news(so_far / self._pass_steps)
        if so_far < _NEWS_EVERY_S:
            return
        total = current.steps(self._context)
        self._context.folder.tell(
            "pass_progress", name=current.name, done=self._pass_steps, total=total
        )

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self._failed(error)
            return None

    # --------------------------------------------------------------------------- passes

    def next_pass(self) -> None:
        """Start the next pass that has something to do; `on_done` if there is none."""
        context = self._context
        while self._queue and self._pass is None:
            if context.folder.failed():  # no further result could be kept
                self._queue = []
                break
            entry = self._queue.pop(0)
            if entry.needs is not None and entry.needs not in context.live:
                continue
            context.live["graph_replays"] = context.hooks.graph_replays
            reason = entry.skip_reason(context)
            if reason is not None:
                context.folder.write(f"skipped-{entry.name}", {"reason": reason})
                context.folder.tell("pass_end", name=entry.name, skipped=reason)
                continue
            if not any(other.worth_a_run for other in (entry, *self._queue)):
                context.folder.tell("enough")
            steps = entry.steps(context)
            limit = entry.longest_s + _PASS_SLOWDOWN * steps * self._step_s
            context.folder.tell("pass_start", name=entry.name, total=steps, limit_s=limit)
            if context.folder.failed():
                continue
            self._pass, self._pass_began = entry, time.perf_counter()
            # What steps of the other passes will take is not known before the first is over.
            self._news_at = _steps_until_news(self._step_s) if entry.ends_only else 1
            self._pass_steps = 0
            first = self.steps_done
            context.nvtx.prepare([_step_range(first + i, entry) for i in range(steps)])
            context.nvtx.push(f"pass:{entry.name}")
            self._on_pass(entry.ends_only)
            try:
                entry.start(context)
            except Exception as error:
                self._failed(error)
        if self._pass is None:
            self._on_done()

    def _close(self, complete: bool) -> None:
        current = self._pass
        assert current is not None
        self._untouched = False
        try:
            result = current.finish(complete)
        except Exception as error:
            self._failed(error)
            return
        self._pass = None
        self._context.nvtx.pop()
        if result is not None:
            self._store(current.name, result)
        self._context.folder.tell(
            "pass_end", name=current.name, seconds=time.perf_counter() - self._pass_began
        )

    def _failed(self, error: BaseException) -> None:
        current, self._pass = self._pass, None
        assert current is not None
        self._untouched = False
        folder = self._context.folder
        result = None
        with contextlib.suppress(Exception):
            result = current.failed(error)
        if result is not None:
            self._store(current.name, result)
        else:
            folder.write(f"failure-{current.name}", PassFailure(current.name, describe(error)))
        folder.tell("pass_end", name=current.name, failed=describe(error))
        self._context.nvtx.pop()
        if current.captures:
            self._queue = []
            self._on_poisoned()

    def _store(self, name: str, result: Any) -> None:
        self._context.folder.write(f"pass-{name}", result)
        self._context.results[name] = to_plain(result)

    # --------------------------------------------------------------------------- ending

    def abandon(self) -> bool:
        """Forget the first pass and the others, if it is still under way; False if it is not.

        What a capture has begun cannot be forgotten.
        """
        current = self._pass
        if current is None or current.captures or not self._untouched:
            return False
        self._pass, self._queue = None, []
        with contextlib.suppress(Exception):
            current.finish(complete=False)  # it takes back what it has put in
        if self._in_step and self._seen:
            self._nvtx.pop()
        self._nvtx.pop()
        return True

    def takes_blame(self, error: BaseException) -> bool:
        """True if an error that left the script comes from the current pass; it is on disk then."""
        if self._pass is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return False
        result = self._pass.failed_inside_step(error)
        if result is None:
            return False
        self._store(self._pass.name, result)
        self._context.folder.tell("pass_end", name=self._pass.name, failed=describe(error))
        self._pass, self._queue = None, []
        return True

    def cut_short(self) -> None:
        """The script is over: what the current pass has by now is its result."""
        if self._pass is not None:
            with contextlib.suppress(Exception):
                self._close(complete=False)
        self._queue = []


def _step_range(number: int, entry: Pass) -> str:
    return f"step#{number} {entry.name}"


def _steps_until_news(seconds_per_step: float) -> int:
    """Counted in steps, because a step does not pay for a look at the clock."""
    return max(1, round(_NEWS_EVERY_S / max(seconds_per_step, 1e-6)))


def describe(error: BaseException) -> str:
    """One line for an error: its type and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
