"""Puts the hooks and wraps that make events into torch, and takes them out again.

During the search the call of every module is wrapped. The measurement replaces the calls of the few
modules of the step, so that those inside of them cost nothing.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import FrameType, ModuleType
from typing import Any
from weakref import ref

from launchscope.runner.child.events import compile_hooks
from launchscope.runner.child.events.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.events.events import NO_OBSERVER, Events, StepObserver
from launchscope.runner.child.events.modules import ObjectKeys
from launchscope.runner.child.facts.imports import ImportWatch
from launchscope.runner.child.facts.patching import Around, replace_call, take_out, within, wrap
from launchscope.runner.child.facts.source_lines import is_ours, is_torch, short_path, user_line
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_DYNAMO = "torch._dynamo"
_CUDAGRAPHS = "torch._inductor.cudagraph_utils"  # of Inductor: why it leaves a graph out
_FOUND = re.compile(r'File "(.+?)", line (\d+)')  # in what it says, the lines of the script


class Hooks(Events):
    """Owns every hook and wrap; `remove` takes all of them back."""

    def __init__(self, torch: Torch, observer: StepObserver):
        super().__init__(torch, observer)
        self._undo, self._module_hooks, self._zero_grad = ExitStack(), ExitStack(), ExitStack()
        self._within = ExitStack()  # what shows the parts of a step
        self._watched: frozenset[str] | None = None  # keys of modules; None: all modules
        self._traces = 0  # nested models that torch traces, or compiles for itself

    # ---------------------------------------------------------------- set up, take down

    def install(self) -> None:
        torch = self.torch
        import torch.utils.data.dataloader as dataloader  # torch is loaded: the script did it

        self.hook_modules()
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._zero_grad.callback(wrap(owner, "zero_grad", self.zero_grad))
        self._optim = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        after = self._optim.register_optimizer_step_post_hook(self.optimizer_ends)
        self._undo.callback(take_out, after)
        self._hook_parts()
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self.fetch)
        self._when_imported(_DYNAMO, self._wrap_dynamo)
        self._when_imported(_CUDAGRAPHS, self._wrap_skips)
        for owner, name, note in _noted_calls(torch):
            self._wrap(owner, name, partial(_noting, self, note))
        for owner, name in (
            (torch.export, "export"),
            (sys.modules["torch.jit._trace"], "_trace_impl"),
            (torch.jit, "trace_module"),
            (torch.jit, "_get_trace_graph"),  # for ONNX
        ):
            if hasattr(owner, name):  # some are internal to torch
                self._wrap(owner, name, partial(within, self._unseen))

    def _hook_parts(self) -> None:
        """Backwards, and where optimizer steps begin: steps that are only followed at their two
        ends should not pay for that."""
        self._within.close()
        boundary = self.boundary_hooks
        if boundary is None:
            before = self._optim.register_optimizer_step_pre_hook(self.optimizer_begins)
            self._within.callback(take_out, before)
        if boundary is None or boundary.counts_backwards:
            self._within.callback(wrap(self.torch.autograd, "backward", self.backward))

    def _wrap(self, owner: Value, name: str, around: Around) -> None:
        self._undo.callback(wrap(owner, name, around))

    def _when_imported(self, name: str, action: Callable[[ModuleType], None]) -> None:
        """Do something with a module that the script, or torch, may import later."""
        if name in sys.modules:
            action(sys.modules[name])
            return
        self._undo.callback(ImportWatch(name, action).end)

    def _wrap_dynamo(self, dynamo: ModuleType) -> None:
        around = partial(compile_hooks.wrap_optimize, self, self._unseen)
        self._wrap(dynamo.eval_frame.OptimizeContext, "__call__", around)

    def _wrap_skips(self, utils: ModuleType) -> None:
        if hasattr(utils, "log_cudagraph_skip_and_bump_counter"):  # internal to torch
            self._wrap(
                utils, "log_cudagraph_skip_and_bump_counter", partial(_noting, self, _note_skip)
            )

    def remove(self) -> None:
        """Take every hook and wrap back, so that the script goes on as if alone."""
        self.active = False
        for hooks in (self._module_hooks, self._zero_grad, self._within, self._undo):
            hooks.close()
        # Whoever kept a wrapper of ours keeps this object, but nothing of the script's.
        self.observer = NO_OBSERVER
        self.modules, self.optimizers = ObjectKeys(), ObjectKeys()

    # ------------------------------------------------------------- which modules have hooks

    def visible(self, keys: frozenset[str]) -> frozenset[str]:
        """Those of the modules named by `keys` that can be watched."""
        known = frozenset(key for key in keys if self.modules.get(key) is not None)
        return keys if self.compiling else known

    def watch_modules(self, keys: frozenset[str], *, zero_grad: bool) -> None:
        """Observe only the forwards of the modules named by `keys` from now on, and zero_grad only
        if the steps begin there."""
        self._watched = keys
        self.wants_lines = False
        self.hook_modules()
        if not zero_grad:
            self._zero_grad.close()

    def observe_boundaries(self, boundary: StepBoundaryHooks) -> bool:
        """Observe only where steps begin and end; False if that is not possible."""
        module, watched = self.modules.get(boundary.key), self._watched or frozenset()
        if module is None or self.compiling or boundary.key not in watched:
            return False
        # A forward inside another one, or a step inside another one, only looks like an end.
        others = (self.modules.get(key) for key in watched - {boundary.key})
        parts = (part for other in others if other is not None for part in other.modules())
        if self.inside_optimizers or any(part is module for part in parts):
            return False
        self.boundary_hooks = boundary
        self.hook_modules()
        self._hook_parts()
        return True

    def observe_everything(self) -> None:
        """Observe every event again; takes back `observe_boundaries`."""
        if self.boundary_hooks is not None:
            self.boundary_hooks = None
            self.hook_modules()
            self._hook_parts()

    def hook_modules(self) -> None:
        """Once something is compiled no module has a hook, nor a call of ours: Dynamo would guard
        on them, and compile again when they go, in the middle of the timing."""
        self._module_hooks.close()
        if self.compiling or self._traces or not self.active:
            return
        boundary = self.boundary_hooks
        if self._watched is None:
            every = wrap(self.torch.nn.Module, "__call__", self.module_call)
            self._module_hooks.callback(every)
            return
        for key in self._watched if boundary is None else [boundary.key]:
            if (module := self.modules.get(key)) is not None:
                observed = partial(self.as_forward, key, ref(module))
                hook = replace_call(module, observed) if boundary is None else boundary.hook(module)
                self._module_hooks.callback(hook)

    # ---------------------------------------------------------- compile, export, tracing

    def compile_starts(self) -> None:
        if not self.compiling:
            self.observe_everything()
            self.compiling = True
            self.hook_modules()
            self._zero_grad.close()
        super().compile_starts()

    @contextlib.contextmanager
    def _unseen(self) -> Iterator[None]:
        """Inside, torch traces a model, or compiles for itself: neither is an event of its own."""
        self._module_hooks.close()
        self._traces += 1
        try:
            with self.silence(), self.around_traced():
                yield
        finally:
            self._traces -= 1
            self.hook_modules()


# What a script may do outside of its steps and a report has to mention.


def _noted_calls(torch: Torch) -> tuple[tuple[Value, str, Callable[..., None]], ...]:
    """What is wrapped: where it is, its name, and what notes each call."""
    # The modules that torch has imported: a script may have files of these names.
    import multiprocessing.process

    return (
        (torch.profiler.profile, "__init__", _note_profiler),
        (torch.autograd.profiler.profile, "__init__", _note_profiler),
        (torch.cuda.CUDAGraph, "replay", _note_replay),
        (multiprocessing.process.BaseProcess, "start", _note_process),
        (torch.optim.lr_scheduler.LRScheduler, "step", _note_scheduler),
    )


def _noting(events: Events, note: Callable[..., None], original: Function) -> Function:
    """Around a function: `note` first gets the frame of the caller and the arguments."""

    def called(*args: Any, **kwargs: Any) -> Value:
        if events.active:
            events.guarded(note, events, sys._getframe(1), *args, **kwargs)
        return original(*args, **kwargs)

    return called


def _note_profiler(
    events: Events, caller: FrameType, profile: Value, enabled: Value = True, **kwargs: Any
) -> None:
    """A profiler is made: while the script's own profiler runs, ours cannot. One of autograd may be
    made for nothing: `enabled=False`."""
    file = caller.f_code.co_filename
    if enabled is not False and not is_ours(file) and not is_torch(file):
        events.user_profiler = True


def _note_replay(events: Events, caller: FrameType, *args: Any) -> None:
    """Counts replays that are not ours."""
    events.graph_replays += not is_ours(caller.f_code.co_filename)


def _note_skip(events: Events, caller: FrameType, message: str) -> None:
    lines = [f"{short_path(file)}:{line}" for file, line in _FOUND.findall(message)]
    events.skipped_graphs.append(" ".join([message.splitlines()[0], *lines[-1:]]))


def _note_process(events: Events, caller: FrameType, process: Value) -> None:
    """Counts processes, without the workers of a DataLoader."""
    events.processes += not runs_function_of("torch.utils.data", process)


def runs_function_of(module: str, thread: Value) -> bool:
    """Whether a thread or a process was given a function of the module or one below it."""
    owner = getattr(getattr(thread, "_target", None), "__module__", None)
    return f"{owner}.".startswith(f"{module}.")


def _note_scheduler(events: Events, caller: FrameType, *args: Any, **kwargs: Any) -> None:
    """The line that steps a scheduler; the constructor of a scheduler also calls its step."""
    if events.wants_lines:
        events.scheduler_where = user_line(caller)
