"""What torch does in the person's process, as events for an observer.

Hooks and wraps of torch call the methods here. Only the outermost events of one thread reach the
observer: not the forward within a forward, within an optimizer step, in a data loader, or the one
that a backward runs again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sys import _getframe
from threading import get_ident
from typing import Any

from launchscope.model import SourceLine
from launchscope.runner.child.events.boundary_hooks import NO_GRAPH_TASK, StepBoundaryHooks
from launchscope.runner.child.events.modules import ObjectKeys, is_weighted
from launchscope.runner.child.facts.source_lines import user_line
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Module,
    Optimizer,
    Torch,
    Value,
)

# What the observed thread has done. Until the step is known, a thread that does more takes over.
RUNS, TRAINS, MARKS = range(3)


class StepObserver:
    """Gets the events of a script at the outermost level only; may raise StopRun."""

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None: ...
    def forward_end(self) -> None: ...
    def backward_begin(self) -> None: ...
    def backward_end(self) -> None: ...
    def zero_grad_begin(self) -> None: ...
    def optimizer_begin(self, key: str) -> None: ...
    def optimizer_end(self, key: str) -> None: ...
    def compiled(self) -> None: ...
    def thread_changed(self) -> None:
        """The events are another thread's from now on, and those so far say nothing of them."""


NO_OBSERVER = StepObserver()


def _raise(error: Exception) -> None:
    raise error


class Events:
    """What is under way in the script, and what was seen of it. `observer` may be swapped."""

    def __init__(self, torch: Torch, observer: StepObserver):
        self.torch = torch
        self.observer = observer
        self.active = True
        # Gets an error of ours: it ends the measurement, and the script must not see it.
        self.broke: Callable[[Exception], None] = _raise
        # What was seen of the script.
        self.compiling = False
        self.user_profiler = False
        self.graph_replays = 0
        self.processes = 0  # that the script started, without DataLoader workers
        self.scheduler_where: SourceLine | None = None
        self.inside_optimizers: set[str] = set()  # "forward", "optimizer": seen in the search
        self.steps_in_backward = False  # optimizers step as gradients come: no events of their own
        self.modules = ObjectKeys()  # outermost ones
        self.optimizers = ObjectKeys()
        self.forwards = 0  # outermost ones
        # Finding a line takes microseconds: only in the search and where lines are read.
        self.wants_lines = True
        self.backward_where: SourceLine | None = None
        # Called with the module of each outermost forward until the step is known.
        self.before_first_forward: Callable[[Module], None] | None = None
        # Entered around each compiled call, and around what torch traces or compiles for itself.
        self.around_compiled: Callable[[], AbstractContextManager[object]] | None = None
        self.around_traced: Callable[[], AbstractContextManager[object]] = nullcontext
        # The observed thread: the first one whose model runs forwards.
        self.thread: int | None = None  # None before its first event
        self._does = RUNS
        self.skipped_graphs: list[str] = []  # why Inductor made none of compiled code
        self.searching = True  # only meanwhile another thread may take over
        # What is under way in the observed thread.
        self.in_forward = False
        self.in_fetch = False  # a data loader is making a batch
        self._in_backward = False
        self._stepping: int | None = None  # the id of the outermost optimizer
        self._silent = 0  # nested contexts in which nothing is an event
        # Sees the steps in place of the observer.
        self.boundary_hooks: StepBoundaryHooks | None = None
        self._process = os.getpid()
        # Called in each forked child, such as the worker of a data loader.
        self.leave_fork: Callable[[], None] = lambda: None
        os.register_at_fork(after_in_child=self._deactivate)

    def emit(self, event: str, *args: Value) -> None:
        """Call the method of the observer with the name of this event."""
        self.guarded(getattr(self.observer, event), *args)

    def guarded(self, action: Function, *args: Value, **kwargs: Value) -> None:
        """Do something of ours, whose error the script must not see."""
        try:
            action(*args, **kwargs)
        except Exception as error:
            self.broke(error)

    def _deactivate(self) -> None:
        self.active = False
        self.leave_fork()
        if self.boundary_hooks is not None:
            self.boundary_hooks.thread = None

    # --------------------------------------------------------------------- the thread

    def ignores_thread(self) -> bool:
        """Whether events are not observed: in a forked child, at the end, in other threads."""
        if not self.active:
            return True
        thread = get_ident()
        if self.thread is None:
            self.thread = thread
        return thread != self.thread

    def on_script_thread(self) -> bool:
        """Whether this is the thread, and the process, whose steps are measured."""
        return get_ident() == self.thread and os.getpid() == self._process

    def takes_over(self, does: int) -> bool:
        """Whether this thread, which TRAINS or MARKS its steps, is observed from now on."""
        other = get_ident() != self.thread
        if not self.active or (other and not (self.searching and does > self._does)):
            return False
        self._does = max(self._does, does)
        if other:
            self.thread = get_ident()
            # The other thread may be anywhere, and says nothing of the step.
            self._stepping = None
            self.in_forward = self._in_backward = self.in_fetch = self.steps_in_backward = False
            self.inside_optimizers.clear()
            self.optimizers = ObjectKeys()
            self.emit("thread_changed")
        return True

    def goes_backward(self) -> bool:
        """Whether this thread is within a backward, whichever thread began that."""
        return bool(self.torch._C._current_graph_task_id() != NO_GRAPH_TASK)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Inside, nothing is an event."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    # -------------------------------------------------------------------- the forward

    def _is_within(self) -> bool:
        """Whether what begins is no event of its own: in another thread, or within something."""
        if self.ignores_thread() or self._in_backward or self.in_fetch or self._silent:
            return True
        return self.in_forward or self.in_optimizer

    def module_call(self, original: Function) -> Function:
        """Around the call of every module."""

        def call(module: Module, *args: Any, **kwargs: Any) -> Value:
            if self.thread is None and not is_weighted(module):  # a transform of batches
                return original(module, *args, **kwargs)
            if self._is_within():
                if self.in_optimizer and get_ident() == self.thread:
                    self.inside_optimizers.add("forward")
                return original(module, *args, **kwargs)
            # A script often creates a loss in every step: only its class repeats.
            key = self.modules.key(module) if is_weighted(module) else type(module).__name__
            if self.before_first_forward is not None:
                self.guarded(self.before_first_forward, module)
            return self._forward(functools.partial(original, module), key, module, args, kwargs)

        return call

    def as_forward(self, key: str, module: Callable[[], Module | None], call: Function) -> Function:
        """The call, observed as a forward of `module()`; None for a function."""

        @functools.wraps(call)
        def observed(*args: Any, **kwargs: Any) -> Value:
            if self._is_within():
                return call(*args, **kwargs)
            return self._forward(call, key, module(), args, kwargs)

        return observed

    def _forward(
        self, call: Function, key: str, module: Module | None, args: Args, kwargs: Kwargs
    ) -> Value:
        self.in_forward = True
        self.emit("forward_begin", key, module, args, kwargs)
        try:
            return call(*args, **kwargs)
        finally:
            if self.in_forward and get_ident() == self.thread:  # else another thread took over
                self.in_forward = False
                self.emit("forward_end")

    # --------------------------------------------------- backward, optimizer, batches

    def backward(self, original: Function) -> Function:
        """Around torch.autograd.backward, which Tensor.backward calls."""

        def backward(*args: Any, **kwargs: Any) -> Value:
            if self._in_backward or self.ignores_thread() or self.in_optimizer:
                return original(*args, **kwargs)
            boundary = self.boundary_hooks
            if boundary is None:
                self.guarded(self._backward_begins)
            self._in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._in_backward = False
            if boundary is None:
                self.emit("backward_end")
            else:
                boundary.backwards += 1
            return result

        return backward

    def _backward_begins(self) -> None:
        if self.wants_lines:
            self.backward_where = user_line(_getframe())
        self.observer.backward_begin()

    def zero_grad(self, original: Function) -> Function:
        """Around zero_grad of an optimizer or a module."""

        def zero_grad(*args: Any, **kwargs: Any) -> Value:
            if not self._is_within():
                self.emit("zero_grad_begin")
            return original(*args, **kwargs)

        return zero_grad

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer step is under way, or one has raised and none came since."""
        return self._stepping is not None

    def optimizer_begins(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        """torch's hook before each optimizer step."""
        if self.boundary_hooks is not None or self._silent or not self.active:
            return
        if self._in_backward and (get_ident() == self.thread or self.goes_backward()):
            self.steps_in_backward = True
            self.optimizers.key(optimizer)
        elif self.ignores_thread():
            return
        elif self._stepping not in (None, id(optimizer)):
            self.inside_optimizers.add("optimizer")
        else:
            self._stepping = id(optimizer)
            self.emit("optimizer_begin", self.optimizers.key(optimizer))

    def optimizer_ends(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        """torch's hook after each optimizer step that has not raised."""
        if self._silent:
            return
        if self.boundary_hooks is not None:
            self.boundary_hooks.optimizer_stepped()
        elif self.ignores_thread():
            if not self.goes_backward():
                self.takes_over(TRAINS)
        elif self._stepping == id(optimizer):
            self._does = max(self._does, TRAINS)
            self._stepping = None
            self.emit("optimizer_end", self.optimizers.key(optimizer))

    def fetch(self, original: Function) -> Function:
        """Around `__next__` of a data loader's iterator."""

        def fetch(iterator: Value) -> Value:
            if self.in_fetch or self.thread != get_ident() or not self.active:
                return original(iterator)
            self._set_in_fetch(True)
            try:
                return original(iterator)
            finally:
                self._set_in_fetch(False)

        return fetch

    def _set_in_fetch(self, begins: bool) -> None:
        self.in_fetch = begins
        if self.boundary_hooks is not None:
            self.boundary_hooks.thread = None if begins else self.thread

    # ------------------------------------------------------------------------ compile

    def compile_starts(self) -> None:
        """The script compiles something."""
        self.compiling = True
        self.emit("compiled")
