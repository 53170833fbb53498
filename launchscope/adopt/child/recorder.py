"""Follows one run of a training script for a comparison with another run, iteration by iteration.

Copies of the script that are compared call `ITERATION` where the loop around the step begins anew.
"""

from __future__ import annotations

import builtins
import copy
import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import get_ident
from types import FrameType
from typing import Any

from launchscope.adopt.child.deterministic import be_deterministic, generator_states
from launchscope.adopt.child.graphed_calls import can_graph, graphed_calls, replace_graphed
from launchscope.adopt.child.libraries import LibraryCalls
from launchscope.adopt.child.line_coverage import LineCoverage
from launchscope.adopt.child.notes import Notes
from launchscope.adopt.child.reachable import Reachable
from launchscope.adopt.child.reads import read_watch, unwatched
from launchscope.adopt.child.state import TrainingState
from launchscope.adopt.child.windows import Windows
from launchscope.adopt.child.writes import WriteGuard
from launchscope.adopt.observation import OBSERVATION
from launchscope.adopt.record import (
    COMPARED,
    ITERATION,
    MOST_COMPARED,
    RECORD_FILE,
    RESULT,
    WINDOW,
    WINDOWS,
    Kind,
    RunResult,
    RunTask,
)
from launchscope.runner.child.enter.attach import seed_torch
from launchscope.runner.child.enter.stop import stop_script
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.reasons import own_failure
from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Torch, Value
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import ChildFolder

_FORWARDS = 3  # of one step, at most, where no optimizer runs
_LONGEST_SEARCH_S = 40.0  # for lines that did not run
_SELDOM = 10  # iterations between states that are noted, behind the first COMPARED
# Iterations after which a checked run changes what a graph could have frozen.
_HALVE_RATES_AFTER, _RELOAD_AFTER = 20, 40


class Recorder:
    """One per process."""

    stops = False  # but for the plan
    suspect = None

    def __init__(self, torch: Torch, folder: ChildFolder, task: RunTask):
        self._torch, self._folder, self._task = torch, folder, task
        self.finished = self.unwound = False
        self._thread, self._begun = get_ident(), time.monotonic()
        self._iterations = -1  # that are over
        self._compared = self._reached = 0  # iterations, and wanted lines that ran in them
        self._own = False  # what is computed now is ours
        self._result = RunResult(0)
        self._state = TrainingState(torch)
        self._notes = Notes(torch, folder.path / RECORD_FILE)
        self._coverage = LineCoverage(task.file)
        self._windows = Windows(torch)
        self._frame: FrameType | None = None  # of the last iteration
        self._recording = ExitStack()
        self._depth = 0  # of module calls
        self._records = task.mode == "record"
        self._last = task.iterations + (WINDOW * WINDOWS if task.mode == "time" else 0)

    # ------------------------------------------------------------------------ set up, take down

    def install(self) -> None:
        """Seed the generators, and put everything in place."""
        torch, task = self._torch, self._task
        os.register_at_fork(after_in_child=self._leave_out)  # workers, whose transforms are modules
        self._folder.emit(events.PassStarted(RESULT, self._last))
        seed_torch(torch)
        guard = WriteGuard(task.scratch, task.root, self._refuse)
        guard.install()
        guard.watch(torch)
        if task.mode == "observe":
            self._observe()
            return
        wrap(torch, "manual_seed", self._seeding)
        torch.random.manual_seed = torch.manual_seed
        wrap(torch.optim.Optimizer, "__init__", self._making)
        replace_graphed(eager=task.eager, checks=task.mode == "check")
        if task.mode == "first":
            self._count_steps()
            return
        # No hook stays in the step: `graphed` would take it for code of the step.
        setattr(builtins, ITERATION, self._begin_iteration)
        if self._records:
            self._watch_batches()

    def _observe(self) -> None:
        # Of the original: a changed script may be importing `graphed`.
        from launchscope.adopt.child.observer import StepWatch

        be_deterministic(self._torch)
        self._watch = StepWatch(self._torch, trains=self._task.trains)
        self._watch.install()
        setattr(builtins, ITERATION, self._begin_observed)

    def _begin_observed(self) -> None:
        if self.finished or get_ident() != self._thread:
            return
        self._iterations += 1
        try:
            self._watch.begin(sys._getframe(1))
            if self._watch.is_over:
                self._end()
        except Exception as error:
            self._folder.emit(own_failure(error))
            self.finished = True
        if self.finished:
            self._stop()

    def _leave_out(self) -> None:
        self.finished = True
        self._recording.close()
        self._coverage.end()

    def _count_steps(self) -> None:
        """This run knows of no loop: so many optimizer steps or, without one, forwards end it."""
        optim = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        optim.register_optimizer_step_post_hook(self._after_step)
        module = self._torch.nn.modules.module
        module.register_module_forward_pre_hook(self._before_forward)
        module.register_module_forward_hook(self._after_forward, always_call=True)

    def _watch_batches(self) -> None:
        # The script's torch. An optimizer imports Dynamo in its first step, slowly under a trace.
        import torch._dynamo  # noqa: F401
        import torch.utils.data.dataloader as loading

        be_deterministic(self._torch)
        self._recording.callback(wrap(loading._BaseDataLoaderIter, "__next__", self._fetching))

    def _trace(self) -> None:
        """From the first iteration on."""
        note_read = lambda name, value: self._note("read", [(name, value)])  # noqa: E731
        self._recording.enter_context(read_watch(self._torch, note_read))
        calls = LibraryCalls(self._torch, functools.partial(self._note, "given"))
        self._coverage.on_call = calls.on_call
        self._recording.callback(setattr, self._coverage, "on_call", None)
        self._coverage.begin()

    def _refuse(self, path: str) -> None:
        self._folder.emit(events.WriteRefused(path))

    # --------------------------------------------------------------------- what the script does

    def _seeding(self, seed: Function) -> Function:
        def noted(*args: Any, **kwargs: Any) -> Value:
            self._result = replace(self._result, seeds_itself=True)
            return seed(*args, **kwargs)

        return noted

    def _making(self, init: Function) -> Function:
        def made(optimizer: Value, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._state.add_optimizer(optimizer)

        return made

    def _fetching(self, fetch: Function) -> Function:
        def fetched(iterator: Value) -> Value:
            batch = fetch(iterator)
            self._note("batch", Reachable(self._torch, is_persons).leaves({"": batch}))
            return batch

        return fetched

    def _after_step(self, optimizer: Value, args: Args, kwargs: Kwargs) -> None:
        self._result = replace(self._result, optimizer_steps=self._result.optimizer_steps + 1)
        if self._result.optimizer_steps >= self._last:
            self._finish()

    def _before_forward(self, module: Value, args: Args) -> None:
        self._depth += 1

    def _after_forward(self, module: Value, args: Args, result: Value) -> None:
        self._depth -= 1
        forwards = self._result.forwards + (self._depth == 0)
        self._result = replace(self._result, forwards=forwards)
        if forwards >= _FORWARDS * self._last and not self._result.optimizer_steps:
            self._finish()

    def _note(self, kind: Kind, values: list[tuple[str, Value]]) -> None:
        is_noted = 0 <= self._iterations < self._last and not (self._own or self.finished)
        if is_noted and get_ident() == self._thread:
            self._quietly(lambda: self._notes.add(kind, values))

    def _quietly(self, action: Callable[[], None]) -> None:
        """Do something that is no part of the script."""
        self._own = True
        try:
            with self._torch.no_grad(), unwatched():
                action()
        except Exception as error:
            self._folder.emit(own_failure(error))
            self._finish()
        finally:
            self._own = False

    # ---------------------------------------------------------------------------- iterations

    def _begin_iteration(self) -> None:
        """An iteration begins, and the one before is over."""
        if self.finished or self._own or get_ident() != self._thread:
            return
        self._frame = sys._getframe(1)
        self._iterations += 1
        self._quietly(self._end_iteration)
        if self._records and self._iterations == 0:
            self._trace()
        if self._iterations >= self._last and not self._searches:
            self._finish()
        elif self._iterations == self._last:
            self._recording.close()  # what comes is only searched for lines, and fast

    def _end_iteration(self) -> None:
        done, task = self._iterations, self._task
        self._folder.emit(events.PassProgress(RESULT, min(done, self._last), self._last))
        if self._records:
            self._record_iteration()
        elif task.mode == "check":
            self._change_what_may_change(done)
        elif done >= task.iterations:
            self._windows.begin_iteration(done - task.iterations)

    def _record_iteration(self) -> None:
        be_deterministic(self._torch)
        done = self._iterations
        if done <= self._last and (done <= COMPARED or done % _SELDOM == 0):
            self._note_state()
        self._notes.end_iteration()
        reached = len(self._coverage.lines.intersection(self._task.until))
        if reached > self._reached or done <= self._last:
            self._reached, self._compared = reached, done

    def _note_state(self) -> None:
        self._notes.add("state", self._state.tensors().items())
        if self._frame is not None:
            values = self._reachable() if self._iterations == 0 else self._frame.f_locals.items()
            tensors = [(n, v) for n, v in values if isinstance(v, self._torch.Tensor)]
            kind: Kind = "local" if self._iterations else "state"
            self._notes.add(kind, sorted(t for t in tensors if t[0] not in self._task.inner))

    def _change_what_may_change(self, done: int) -> None:
        """What a training run may change between two steps, and a graph could have frozen."""
        if done == _HALVE_RATES_AFTER:
            for optimizer in self._state.optimizers():
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] / 2
        elif done == _RELOAD_AFTER:
            held = {**self._frame.f_globals, **self._frame.f_locals}.values() if self._frame else ()
            models = [value for value in held if isinstance(value, self._torch.nn.Module)]
            for owner in (*models, *self._state.optimizers()):
                owner.load_state_dict(copy.deepcopy(owner.state_dict()))

    @property
    def _searches(self) -> bool:
        """Whether lines are still missing, and there is time for them."""
        in_time = time.monotonic() - self._begun < _LONGEST_SEARCH_S
        is_short = in_time and self._iterations < MOST_COMPARED
        return is_short and not self._coverage.lines.issuperset(self._task.until)

    # ------------------------------------------------------------------------------- the end

    def _reachable(self) -> list[tuple[str, Value]]:
        """From where the iteration begins."""
        assert self._frame is not None
        roots = {**self._frame.f_globals, **self._frame.f_locals}
        hidden = {n for n in roots if n.startswith("__") and n.endswith("__")}
        named = {n: v for n, v in roots.items() if n not in hidden and n not in self._task.inner}
        return Reachable(self._torch, is_persons).leaves(named)

    def _note_end(self) -> None:
        if self._frame is not None:
            self._notes.add("end", self._reachable())
        states = generator_states(self._torch)
        self._notes.add("end", ((f"generator of {name}", state) for name, state in states.items()))

    def _finish(self) -> None:
        if self.finished:
            return
        self._end()
        self._stop()

    def _stop(self) -> None:
        self._folder.emit(events.MeasuringEnded())
        stop_script(self._torch, lambda: not self.unwound and get_ident() == self._thread)

    def _end(self) -> None:
        self.finished = True
        if self._task.mode == "observe":
            self._watch.end()
            self._folder.write(OBSERVATION, self._watch.result())
        self._recording.close()
        self._coverage.end()
        if self._records and self._iterations <= self._last:
            self._quietly(self._note_end)
        self._notes.close()
        replayed, eager = graphed_calls()
        self._folder.write(
            RESULT,
            replace(
                self._result,
                iterations=max(0, self._iterations),
                compared=self._compared,
                lines=tuple(sorted(self._coverage.lines)),
                window_ms=self._windows.iteration_ms(),
                graphs=can_graph(),
                replayed=replayed,
                eager=eager,
            ),
        )

    def absorbs(self, error: BaseException) -> bool:
        """No error of the script is ours."""
        return False

    def script_ended(self) -> None:
        """By itself: what there is has to do."""
        if not self.finished:
            self._iterations += 1
            self._quietly(self._end_iteration)
            self._end()
        steps, optimizer_steps = self._iterations, self._result.optimizer_steps
        self._folder.emit(events.ScriptEnded(steps=steps, optimizer_steps=optimizer_steps))
