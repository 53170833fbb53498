"""Follows one run of a training script for a comparison with another run, iteration by iteration.

Copies of the script that are compared call `iteration` where the loop around the step begins anew.
"""

from __future__ import annotations

import builtins
import copy
import functools
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import get_ident
from types import FrameType
from typing import Any

from launchscope.adopt.child.deterministic import be_deterministic, generator_states
from launchscope.adopt.child.graphed_calls import GraphedCalls
from launchscope.adopt.child.libraries import LibraryCalls
from launchscope.adopt.child.line_coverage import LineCoverage
from launchscope.adopt.child.notes import Notes
from launchscope.adopt.child.reachable import Reachable
from launchscope.adopt.child.reads import watch_reads
from launchscope.adopt.child.state import TrainingState
from launchscope.adopt.child.windows import Windows
from launchscope.adopt.child.writes import WriteGuard
from launchscope.adopt.record import (
    ITERATION,
    MOST_COMPARED,
    RECORD_FILE,
    RESULT,
    WINDOW,
    WINDOWS,
    RunResult,
    RunTask,
)
from launchscope.runner.child.enter.attach import seed_torch
from launchscope.runner.child.enter.stop import stop_script
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.reasons import own_failure
from launchscope.runner.child.facts.source_lines import is_persons
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Module, Torch, Value
from launchscope.runner.protocol import events
from launchscope.runner.protocol.folder import ChildFolder

_FORWARDS = 3  # of one step, at most, where no optimizer runs
_LONGEST_SEARCH_S = 60.0  # for lines that did not run
# Iterations after which a checked run changes what a graph could have frozen.
_HALVE_RATES_AFTER, _RELOAD_AFTER = 20, 40


class Recorder:
    """One per process."""

    stops = False  # but for the plan
    suspect = None

    def __init__(self, torch: Torch, folder: ChildFolder, task: RunTask):
        self._torch, self._folder, self._task = torch, folder, task
        self.finished = self.unwound = False
        self._thread = get_ident()
        self._begun = time.monotonic()
        self._iterations = -1  # that are over
        self._own = False  # what is computed now is ours
        self._result = RunResult(0)
        self._state = TrainingState(torch)
        self._notes = Notes(torch, folder.path / RECORD_FILE)
        self._libraries = LibraryCalls(torch, functools.partial(self._note, "given"))
        self._coverage = LineCoverage(task.file) if task.file else None
        self._windows = Windows(torch)
        self._graphed = GraphedCalls(torch, eager=task.eager, checks=task.mode == "check")
        self._frame: FrameType | None = None  # of the last iteration
        self._recording = ExitStack()
        self._forwards = self._depth = 0
        timed = WINDOW * WINDOWS if task.mode == "time" and task.file else 0
        self._last = task.iterations + timed

    @property
    def _records(self) -> bool:
        return self._task.mode == "record"

    # ------------------------------------------------------------------------ set up, take down

    def install(self) -> None:
        """Seed the generators, and put everything in place."""
        torch, task = self._torch, self._task
        self._folder.emit(events.PassStarted(RESULT, self._last))
        seed_torch(torch)
        guard = WriteGuard(task.scratch, task.root, self._refuse)
        guard.install()
        guard.watch(torch)
        wrap(torch, "manual_seed", self._seeding)
        torch.random.manual_seed = torch.manual_seed
        wrap(torch.optim.Optimizer, "__init__", self._making)
        if task.file:
            # No hook stays in the step: `graphed` would take it for code of the step.
            setattr(builtins, ITERATION, self._begin_iteration)
        else:
            optim = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
            optim.register_optimizer_step_post_hook(self._after_step)
            module = torch.nn.modules.module
            module.register_module_forward_pre_hook(self._before_forward)
            module.register_module_forward_hook(self._after_forward, always_call=True)
        self._graphed.install()
        if self._records:
            self._watch()

    def _watch(self) -> None:
        # The script's torch. An optimizer imports Dynamo in its first step, slowly under a trace.
        import torch._dynamo  # noqa: F401
        import torch.utils.data.dataloader as loading

        be_deterministic(self._torch)
        fetching = loading._BaseDataLoaderIter
        self._recording.callback(wrap(fetching, "__next__", self._fetching))
        note_read = lambda name, value: self._note("read", [(name, value)])  # noqa: E731
        watch_reads(self._torch, note_read, self._recording)

    def _trace(self) -> None:
        """From the first iteration on."""
        self._libraries.begin()
        self._recording.callback(self._libraries.end)
        if self._coverage is not None:
            self._coverage.begin()
            self._recording.callback(self._coverage.end)

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

    def _after_step(self, optimizer: Value, args: Args, kwargs: Kwargs) -> None:
        steps = self._result.optimizer_steps + 1
        self._result = replace(self._result, optimizer_steps=steps)
        if steps >= self._last:
            self._finish()

    # The first run knows of no loop: so many optimizer steps or, without one, forwards end it.

    def _before_forward(self, module: Module, args: Args) -> None:
        self._depth += 1

    def _after_forward(self, module: Module, args: Args, result: Value) -> None:
        self._depth -= 1
        self._forwards += self._depth == 0
        if self._forwards >= _FORWARDS * self._last and not self._result.optimizer_steps:
            self._finish()

    def _fetching(self, fetch: Function) -> Function:
        def fetched(iterator: Value) -> Value:
            batch = fetch(iterator)
            leaves = Reachable(self._torch, is_persons).leaves({"": batch})
            self._note("batch", leaves)
            return batch

        return fetched

    def _note(self, kind: Any, values: list[tuple[str, Value]]) -> None:
        if not (self._own or self.finished or self._iterations < 0) and get_ident() == self._thread:
            self._quietly(lambda: self._notes.add(kind, values))

    def _quietly(self, action: Callable[[], None]) -> None:
        """Do something that is no part of the script."""
        self._own = True
        try:
            with self._torch.no_grad():
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
        if self._iterations == 0 and self._records:
            self._trace()
        if self._is_over():
            self._quietly(self._note_end)
            self._finish()

    def _end_iteration(self) -> None:
        done = self._iterations
        self._folder.emit(events.PassProgress(RESULT, min(done, self._last), self._last))
        if self._records:
            self._record_iteration()
        elif self._task.mode == "check":
            self._change_what_may_change(done)
        elif done >= self._task.iterations:
            self._windows.note(done)

    def _record_iteration(self) -> None:
        be_deterministic(self._torch)
        if self._iterations == 0 or not self._state.modules():
            self._state.find_modules()
        self._notes.add("state", self._state.tensors().items())
        if self._frame is not None:
            local = self._frame.f_locals.items()
            tensors = [(n, v) for n, v in local if isinstance(v, self._torch.Tensor)]
            inner = self._task.inner
            self._notes.add("local", sorted(t for t in tensors if t[0] not in inner))
        self._libraries.begin_iteration()
        self._notes.end_iteration()

    def _change_what_may_change(self, done: int) -> None:
        """What a training run may change between two steps, and a graph could have frozen."""
        if done == _HALVE_RATES_AFTER:
            for optimizer in self._state.optimizers():
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] / 2
        elif done == _RELOAD_AFTER:
            self._state.find_modules()
            for stateful in (*self._state.modules(), *self._state.optimizers()):
                stateful.load_state_dict(copy.deepcopy(stateful.state_dict()))

    def _is_over(self) -> bool:
        done, task = self._iterations, self._task
        if done < self._last or self._coverage is None or not self._records:
            return done >= self._last
        searches = not self._coverage.lines.issuperset(task.until)
        in_time = time.monotonic() - self._begun < _LONGEST_SEARCH_S
        return not (searches and in_time and done < MOST_COMPARED)

    # ------------------------------------------------------------------------------- the end

    def _note_end(self) -> None:
        """What can be reached from where the iteration begins."""
        if not self._records or self._frame is None:
            return
        roots = {**self._frame.f_globals, **self._frame.f_locals}
        named = {n: v for n, v in roots.items() if self._is_compared(n)}
        self._notes.add("end", Reachable(self._torch, is_persons).leaves(named))
        states = generator_states(self._torch)
        self._notes.add("end", ((f"generator of {name}", state) for name, state in states.items()))

    def _is_compared(self, name: str) -> bool:
        hidden = name.startswith("__") and name.endswith("__")
        return not hidden and name not in self._task.inner

    def _finish(self) -> None:
        if self.finished:
            return
        self._end()
        self._folder.emit(events.MeasuringEnded())
        stop_script(self._torch, lambda: not self.unwound and get_ident() == self._thread)

    def _end(self) -> None:
        self.finished = True
        self._recording.close()
        self._notes.close()
        self._folder.write(
            RESULT,
            replace(
                self._result,
                iterations=max(0, self._iterations),
                forwards=self._forwards,
                lines=() if self._coverage is None else tuple(sorted(self._coverage.lines)),
                partial_momentum=self._state.has_partial_momentum(),
                window_ms=self._windows.unit_ms(),
                graphs=self._graphed.can_graph,
                replays=self._graphed.replays(),
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
        self._folder.emit(
            events.ScriptEnded(steps=self._iterations, optimizer_steps=self._result.optimizer_steps)
        )
