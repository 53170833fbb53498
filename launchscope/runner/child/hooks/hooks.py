"""Turns what torch does in the person's process into events for an observer.

During the search global module hooks see every outermost forward. The measurement has hooks on
the few modules of the step, because a global hook makes every module call slower. Forked children
and other threads are not observed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from threading import RLock, get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeAlias

from launchscope.model import SourceLine
from launchscope.runner.child.hooks import compile_hooks
from launchscope.runner.child.hooks.boundary_hooks import (
    NO_GRAPH_TASK,
    StepBoundaryHooks,
    UncopyableHook,
    is_replaceable,
    own_hook_ids,
    replace_call,
    take_out,
    with_own_call,
)
from launchscope.runner.child.hooks.dataloader_hook import wrap_fetch
from launchscope.runner.child.hooks.epochs import Epochs
from launchscope.runner.child.hooks.modules import ObjectKeys, is_weighted
from launchscope.runner.child.hooks.patches import (
    known_to_torchscript,
    noting,
    patches,
    put_in_place,
)
from launchscope.runner.child.import_watch import ImportWatch
from launchscope.runner.child.source_lines import user_line
from launchscope.runner.child.torch_types import Args, Kwargs, Module, Optimizer, Torch, Value

_Call: TypeAlias = Callable[..., Value]
# The frame of torch that calls the hook before a forward or an optimizer step, by its id: the
# frame itself would keep alive what a script frees after running out of memory. A later frame with
# the same id and code does not go unnoticed, because that hook is called from each of those.
_HookedFrame: TypeAlias = tuple[int, CodeType]


# What the observed thread has done. Until the step is known, a thread that does more takes over.
RUNS, TRAINS, MARKS = range(3)
# A call of a module has four frames, and one more while global hooks are there.
_MORE_FRAMES = 5 / 4
_DYNAMO = "torch._dynamo"
_HOOKED_AT_ALL = "_has_any_global_hook"
_GLOBAL = (  # where a hook of ours is, in a module of torch
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
)
_OWN_FRAMES = 50  # that may run within a step of the script, and around all of it


class StepObserver:
    """Gets the events of a script at the outermost level only; may raise StopRun."""

    def forward_begin(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None: ...
    def forward_end(self) -> None: ...
    def backward_begin(self) -> None: ...
    def backward_end(self) -> None: ...
    def zero_grad_begin(self) -> None: ...
    def optimizer_begin(self, key: str) -> None: ...
    def optimizer_end(self, key: str) -> None: ...
    def fetch_begin(self) -> None: ...
    def compiled(self) -> None: ...
    def thread_changed(self) -> None:
        """The events are another thread's from now on, and those so far say nothing of them."""

    def trained_elsewhere(self) -> None:
        """An optimizer stepped in a thread that is not observed. The only event of that thread."""


NO_OBSERVER = StepObserver()


def _raise(error: Exception) -> None:
    raise error


def _is_below(frame: FrameType | None, hooked: _HookedFrame | None) -> bool:
    """Whether a frame is `hooked` or called, at any depth, from there."""
    while hooked is not None and frame is not None:
        if hooked == (id(frame), frame.f_code):
            return True
        frame = frame.f_back
    return False


class Hooks:
    """Owns every hook and patch; `observer` may be swapped, `remove` takes all of it back."""

    def __init__(self, torch: Torch, observer: StepObserver):
        self.torch = torch
        self.observer = observer
        self.active = True
        # What was seen of the script.
        self.compiling = False
        self.compile_makes_graphs = False  # what was compiled last
        # Entered around each compiled call of the script; may be entered within itself.
        self.around_compiled: Callable[[], AbstractContextManager[object]] | None = None
        # The same around what torch traces, of which no step consists.
        self.around_traced: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        # And around what torch compiles by itself to run an operator of a step.
        self.around_operator: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
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
        # Gets an error of ours: it ends the measurement, and the script must not see it.
        self.broke: Callable[[Exception], None] = _raise
        # The threads beside the observed one.
        self.other_forwards = 0  # outermost ones, of models, until the step is known
        self._depths = Counter[int]()  # of their nested forwards
        # The observed thread: the first one whose model runs forwards.
        self.thread: int | None = None  # None before its first event
        self._does = RUNS
        self._searching = True  # only meanwhile another thread may take over
        self._choice = RLock()
        self.depth = 0  # of nested forwards
        self._forward: _HookedFrame | None = None  # the outermost forward; it may have been left
        self.in_fetch = False  # a data loader is making a batch
        self.epochs = Epochs()
        self._in_backward = False
        self._step: _HookedFrame | None = None  # the outermost optimizer step; it may have raised
        # Hooks and patches.
        self.boundary_hooks: StepBoundaryHooks | None = None
        self._undo, self._global, self._local = ExitStack(), ExitStack(), ExitStack()
        self._global_ids = frozenset[int]()  # of the hooks that see every module
        self._zero_grad = ExitStack()
        self._watched: frozenset[str] = frozenset()
        self._passing_by: set[str] = set()  # modules whose call nothing can replace
        self._process = os.getpid()
        # Such a callback cannot be taken back, so it must not keep the script's models alive.
        self.in_forks(weakref.WeakMethod(self._deactivate))

    # ---------------------------------------------------------------- set up, take down

    def install(self) -> None:
        torch = self.torch
        import torch.utils.data.dataloader as dataloader  # torch is loaded: the script did it

        self._room_for_frames()

        self._hook_everywhere()
        # torch.optim hides its submodule of that name.
        self._optim = sys.modules["torch.optim.optimizer"]
        self._hook_before_optimizers()
        with own_hook_ids(torch):
            after = self._optim.register_optimizer_step_post_hook(self._optimizer_post)
            self._after_optimizer = after
        self._undo.callback(lambda: take_out(self._before_optimizer))
        self._undo.callback(take_out, after)
        # That of a tensor calls this one.
        unobserved = torch.autograd.backward
        self._wrap(torch.autograd, "backward", self._wrap_backward)
        known_to_torchscript(torch, unobserved, torch.autograd.backward)
        self._backwards = unobserved, torch.autograd.backward
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", partial(wrap_fetch, self))
        self._when_imported(_DYNAMO, self._wrap_dynamo)
        for owner, name, note in patches(torch):
            self._wrap(owner, name, partial(noting, self, note))
        for owner, name in (
            (torch.export, "export"),
            (sys.modules["torch.jit._trace"], "_trace_impl"),
            (torch.jit, "trace_module"),
            (torch.jit, "_get_trace_graph"),  # for ONNX
        ):
            if hasattr(owner, name):  # some are internal to torch
                self._wrap(owner, name, self._wrap_tracing)
        self._wrap(torch.jit._recursive, "infer_concrete_type_builder", with_own_call)

    def _hook_everywhere(self) -> None:
        self._hook_every_module()
        for owner in (self.torch.optim.Optimizer, self.torch.nn.Module):
            self._wrap(owner, "zero_grad", self._wrap_zero_grad, self._zero_grad)

    def _wrap(
        self,
        owner: Value,
        name: str,
        around: Callable[[_Call], _Call],
        undo: ExitStack | None = None,
    ) -> None:
        original = getattr(owner, name)
        ours = functools.wraps(original)(around(original))
        (undo or self._undo).callback(put_in_place(owner, name, ours))

    def _when_imported(self, name: str, action: Callable[[ModuleType], None]) -> None:
        """Do something with a module that the script, or torch, may import later."""
        if name in sys.modules:
            action(sys.modules[name])
            return
        watch = ImportWatch(name, lambda _: True, action)
        watch.begin()
        self._undo.callback(watch.end)

    def _wrap_dynamo(self, dynamo: ModuleType) -> None:
        around = partial(compile_hooks.wrap_optimize, self)
        self._wrap(dynamo.eval_frame.OptimizeContext, "__call__", around)
        backwards = partial(compile_hooks.wrap_compiled_autograd, self)
        autograd = sys.modules.get(f"{_DYNAMO}.compiled_autograd")
        if hasattr(autograd, "_enable"):  # an interface internal to torch
            self._wrap(autograd, "_enable", backwards)

    def _room_for_frames(self) -> None:
        """Let the script's calls nest as deep as without the hooks, which nest their own."""
        before = sys.getrecursionlimit()
        raised = int(before * _MORE_FRAMES) + _OWN_FRAMES
        sys.setrecursionlimit(raised)

        def take_back() -> None:
            # Otherwise the script has set its own, or is deeper than that.
            with contextlib.suppress(RecursionError):
                if sys.getrecursionlimit() == raised:
                    sys.setrecursionlimit(before)

        self._undo.callback(take_back)

    def remove(self) -> None:
        """Take every hook and patch back, so that the script goes on as if alone."""
        self.active = False
        for hooks in (self._global, self._local, self._zero_grad, self._undo):
            hooks.close()
        compile_hooks.forget_wrappers_in_dynamo()
        compile_hooks.keep_dynamo_out()  # the mode of a rehearsal stays
        # Whoever kept a wrapper of ours keeps this object, but nothing of the script's.
        self.observer = NO_OBSERVER
        self.modules, self.optimizers = ObjectKeys(), ObjectKeys()

    def in_forks(self, method: weakref.WeakMethod[Callable[[], None]]) -> None:
        """Call a method in every forked child, for as long as its object lives."""
        os.register_at_fork(after_in_child=lambda: (call := method()) and call())

    def _deactivate(self) -> None:
        self.active = False
        if self.boundary_hooks is not None:
            self.boundary_hooks.thread = None

    def watch_modules(self, keys: frozenset[str]) -> frozenset[str]:
        """Replace the global module hooks by hooks on the modules named by `keys`.

        The result is the keys that can be observed from now on.
        """
        self._global.close()
        self._local.close()
        self.wants_lines = False
        if self.compiling:
            return keys
        self._watched = keys
        return self._hook_modules()

    def watch_all_modules(self) -> None:
        """Observe every outermost forward again; takes back `watch_modules`."""
        self._searching = True
        self.stop_watching_modules()
        self.wants_lines = True
        if not self.compiling:
            self._zero_grad.close()
            self._hook_everywhere()

    def ignore_zero_grad(self) -> None:
        """From now on: the steps begin elsewhere, and should not pay for the hook."""
        self._zero_grad.close()

    def stop_watching_modules(self) -> None:
        """Observe only backwards and optimizer steps from now on."""
        self.observe_everything()
        self._watched = frozenset()
        self._local.close()
        self.depth = 0  # the end of a forward that is under way is not observed

    def _hook_every_module(self) -> None:
        every = self.torch.nn.modules.module
        with own_hook_ids(self.torch):
            before = every.register_module_forward_pre_hook(self._global_pre)
            after = every.register_module_forward_hook(self._global_post, always_call=True)
        self._global.callback(before.remove)
        self._global.callback(take_out, after)
        self._global_ids = frozenset((before.id, after.id))
        self._global.callback(setattr, self, "_global_ids", frozenset())
        if hasattr(every, _HOOKED_AT_ALL):  # not in older versions of torch
            self._wrap(every, _HOOKED_AT_ALL, self._wrap_hooked_at_all, self._global)

    @contextlib.contextmanager
    def within_step(self) -> Iterator[None]:
        """Inside, torch compiles for itself, in the middle of a step."""
        with self.without_global_hooks(), self.around_operator():
            yield

    @contextlib.contextmanager
    def without_global_hooks(self) -> Iterator[None]:
        """Inside, torch has no global module hook of ours. They come back to their places, unless
        they have been taken back meanwhile."""
        ids = self._global_ids
        if not ids:
            yield
            return
        every = self.torch.nn.modules.module
        before = [(table, dict(table)) for name in _GLOBAL if (table := getattr(every, name))]
        for table, _ in before:
            for number in ids & table.keys():
                del table[number]
        try:
            yield
        finally:
            back = ids & self._global_ids
            for table, entries in before:
                now = dict(table)
                table.clear()
                table.update({k: v for k, v in entries.items() if k in back or k in now} | now)

    def _wrap_hooked_at_all(self, original: _Call) -> _Call:
        """What Dynamo asks before a compiled module, to warn of global hooks."""

        def hooked_at_all() -> bool:
            with self.without_global_hooks():
                return bool(original())

        return hooked_at_all

    def _hook_modules(self) -> frozenset[str]:
        seen = set()
        for key in self._watched:
            module = self.modules.get(key)
            if module is None:
                continue
            # Unlike hooks, a call that replaces the module's own is in no copy and no pickle of it.
            # Only a hook shows the end of a call that is under way, and a call that passes by where
            # torch looks for a replacement.
            observed = partial(compile_hooks.observed_call, self, key, module, replaces=True)
            kind, scripted = self.torch.nn.Module, isinstance(module, self.torch.jit.ScriptModule)
            called = scripted or not (self.depth or key in self._passing_by)
            restore = replace_call(module, observed) if called else None
            if restore is not None:
                self._local.callback(restore)
            elif scripted:
                continue  # TorchScript takes no hooks on single modules
            else:  # the script's class may have methods of these names of its own
                pre, post = UncopyableHook(self._local_pre, key), UncopyableHook(self._local_post)
                with own_hook_ids(self.torch):
                    for hook in (
                        kind.register_forward_pre_hook(module, pre, with_kwargs=True, prepend=True),
                        kind.register_forward_hook(module, post, always_call=True),
                    ):
                        self._local.callback(hook.remove)
            seen.add(key)
        return frozenset(seen)

    def observe_boundaries(self, boundary: StepBoundaryHooks) -> bool:
        """Observe only where steps begin and end; False if that is not possible."""
        module = self.modules.get(boundary.key)
        if module is None or self.compiling or boundary.key not in self._watched:
            return False
        if isinstance(module, self.torch.jit.ScriptModule):
            return False
        # A forward inside another one, or a step inside another one, only looks like an end.
        others = (self.modules.get(key) for key in self._watched - {boundary.key})
        parts = (part for other in others if other is not None for part in other.modules())
        if self.inside_optimizers or any(part is module for part in parts):
            return False
        self._local.close()
        restore = boundary.hook(module)
        if restore is None:
            self._hook_modules()
            return False
        self._local.callback(restore)
        self._before_optimizer.remove()
        self._put_after_optimizer(boundary.optimizer_hook())
        if not boundary.counts_backwards:
            self._observe_backwards(False)
        self.boundary_hooks = boundary
        return True

    def observe_everything(self) -> None:
        """Observe every event again; takes back `observe_boundaries`."""
        if self.boundary_hooks is not None:
            self.boundary_hooks = None
            self._local.close()
            self._hook_modules()
            self._hook_before_optimizers()
            self._put_after_optimizer(self._optimizer_post)
            self._observe_backwards(True)

    def _put_after_optimizer(self, hook: Callable[..., None]) -> None:
        """The hook after the step stays in its place: this may be called from it, while torch walks
        through its table."""
        table, number = self._after_optimizer.hooks_dict_ref(), self._after_optimizer.id
        if number in table:
            table[number] = hook

    def _hook_before_optimizers(self) -> None:
        register = self._optim.register_optimizer_step_pre_hook
        with own_hook_ids(self.torch):
            self._before_optimizer = register(self._optimizer_pre)

    def _observe_backwards(self, observed: bool) -> None:
        own, wrapped = self._backwards
        present, wanted = (own, wrapped) if observed else (wrapped, own)
        autograd = self.torch.autograd
        if autograd.backward is present:  # otherwise the script has put its own there
            autograd.backward = wanted

    # -------------------------------------------------------------------------- helpers

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

    def settle_thread(self) -> bool:
        """The step of this thread is known: no other thread takes over from now on. False if one
        has done so."""
        with self._choice:
            if observed := get_ident() == self.thread:
                self._searching = False
            return observed

    def takes_over(self, does: int) -> bool:
        """Whether this thread, which TRAINS or MARKS its steps, is observed from now on."""
        with self._choice:
            other = get_ident() != self.thread
            if not self.active or (other and not (self._searching and does > self._does)):
                return False
            self._does = max(self._does, does)
            if other:
                self.thread = get_ident()
                # The other thread may be anywhere, and says nothing of the step.
                self.depth, self._forward, self._step = 0, None, None
                self._in_backward = self.in_fetch = self.steps_in_backward = False
                self.inside_optimizers.clear()
                self.observer.thread_changed()
            return True

    def trained_elsewhere(self) -> None:
        """An optimizer step of a thread that is not observed is over."""
        if not self.active or get_ident() == self.thread or self._goes_backward():
            return
        try:
            if not self.takes_over(TRAINS) and not self._searching:
                self.observer.trained_elsewhere()
        except Exception as error:
            self.broke(error)

    def _goes_backward(self) -> bool:
        """Whether this thread is within a backward, whichever thread began that."""
        return bool(self.torch._C._current_graph_task_id() != NO_GRAPH_TASK)

    def not_a_step(self) -> bool:
        """Whether a forward is no event of its own: in another thread, or inside of another."""
        # As in `ignores_thread`: a call would cost two microseconds in every step.
        if (not self.active or get_ident() != self.thread) and self.ignores_thread():
            return True
        if self._in_backward or self.in_fetch:
            return True
        return self._step is not None and self._in_step(sys._getframe(1))

    def _in_step(self, frame: FrameType | None) -> bool:
        """Whether `frame` is below the optimizer step; forgets a step that raised.

        torch calls no hook after a step that raised, so only the frames can say it.
        """
        if _is_below(frame, self._step):
            return True
        self._step = None
        return False

    def in_forward(self, caller: FrameType | None) -> bool:
        """Whether a forward that `caller` begins is within another one.

        torch calls no hook after a forward that a KeyboardInterrupt has left, and one may arrive
        within a hook of ours, so only the frames can say that.
        """
        if self.depth and not _is_below(caller and caller.f_back, self._forward):
            self.depth = 0
        return self.depth > 0

    def enter_forward(self, caller: FrameType) -> None:
        """A forward that `caller` begins is the outermost one from now on."""
        self.depth, self._forward = 1, (id(caller), caller.f_code)

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer step is under way."""
        return self._step is not None

    # ---------------------------------------------------------------------- the forward

    def _global_pre(self, module: Module, args: Args) -> None:
        try:
            if (thread := get_ident()) != self.thread and not self._is_first_forward(module):
                self._begins_elsewhere(thread, module)
                return
            if self.not_a_step():
                if self._step is not None:
                    self.inside_optimizers.add("forward")
                return
            if self.in_forward(sys._getframe(1)):
                self.depth += 1
            else:
                self.enter_forward(sys._getframe(1))
                # A global hook does not get the keyword inputs; its caller holds them.
                kwargs = sys._getframe(1).f_locals.get("kwargs") or {}
                # A script often creates a loss in every step: only its class repeats.
                key = self.modules.key(module) if is_weighted(module) else type(module).__name__
                if not is_replaceable(sys._getframe(1)):
                    self._passing_by.add(key)
                if self.before_first_forward is not None:
                    self.before_first_forward(module)
                self.observer.forward_begin(key, module, args, kwargs)
        except Exception as error:
            self.broke(error)

    def _is_first_forward(self, module: Module) -> bool:
        """Whether no thread is observed yet, and this forward is a model's: transforms of batches
        that are fetched ahead are modules too."""
        return self.thread is None and is_weighted(module)

    def _begins_elsewhere(self, thread: int, module: Module) -> None:
        self._depths[thread] += 1
        outermost = self._depths[thread] == 1 and not self._goes_backward()
        self.other_forwards += outermost and is_weighted(module)

    def _global_post(self, module: Module, args: Args, output: Value) -> None:
        if (thread := get_ident()) != self.thread:
            self._depths[thread] = max(0, self._depths[thread] - 1)
        else:
            self._local_post(module, args, output)

    def _local_pre(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        try:
            if self.not_a_step():
                return
            if self.in_forward(sys._getframe(1)):
                self.depth += 1
            else:
                self.enter_forward(sys._getframe(1))
                self.observer.forward_begin(key, module, args, kwargs)
        except Exception as error:
            self.broke(error)

    def _local_post(self, module: Module, args: Args, output: Value) -> None:
        try:
            if self.not_a_step():
                return
            self.depth = max(0, self.depth - 1)
            if self.depth == 0:
                self.observer.forward_end()
        except Exception as error:
            self.broke(error)

    # ----------------------------------------------- backward, optimizer, compile, export

    def _wrap_backward(self, original: _Call) -> _Call:
        def backward(*args: Any, **kwargs: Any) -> Value:
            if self.ignores_thread():
                return original(*args, **kwargs)
            if self._in_backward:
                return original(*args, **kwargs)
            if self._step is not None and self._in_step(sys._getframe(1)):
                return original(*args, **kwargs)
            boundary = self.boundary_hooks
            try:
                if boundary is None:
                    if self.wants_lines:
                        self.backward_where = user_line(sys._getframe(1))
                    self.observer.backward_begin()
            except Exception as error:
                self.broke(error)
            self._in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._in_backward = False
            if boundary is not None:
                boundary.backwards += 1
                return result
            try:
                self.observer.backward_end()
            except Exception as error:
                self.broke(error)
            return result

        return backward

    def _wrap_zero_grad(self, original: _Call) -> _Call:
        def zero_grad(*args: Any, **kwargs: Any) -> Value:
            try:
                if not (self.depth or self.not_a_step()):
                    self.observer.zero_grad_begin()
            except Exception as error:
                self.broke(error)
            return original(*args, **kwargs)

        return zero_grad

    def _optimizer_pre(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        try:
            within = get_ident() == self.thread or self._goes_backward()
            if self._in_backward and self.active and within:
                self.steps_in_backward = True
                self.optimizers.key(optimizer)
                return
            if self.ignores_thread():
                return
            wrapper = sys._getframe(1)
            if self._step is not None and self._in_step(wrapper.f_back):
                self.inside_optimizers.add("optimizer")
                return
            self._step = id(wrapper), wrapper.f_code
            self.observer.optimizer_begin(self.optimizers.key(optimizer))
        except Exception as error:
            self.broke(error)

    def _optimizer_post(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        try:
            if self.ignores_thread():
                self.trained_elsewhere()
                return
            if self._in_backward:
                return
            self._does = max(self._does, TRAINS)
            if self._step is not None and self._step[0] == id(sys._getframe(1)):
                self._step = None
                self.observer.optimizer_end(self.optimizers.key(optimizer))
        except Exception as error:
            self.broke(error)

    def compile_starts(self, makes_graphs: bool) -> None:
        """From the first compiling of the script on no global module hook may be left.

        Present at the first call they make Dynamo guard on them, and it would compile
        again when they go (in the middle of the timing).
        """
        if not self.compiling:
            self.compiling = True
            self.observe_everything()  # what compiles replaces the call that shows the boundary
            self._global.close()
            self._zero_grad.close()
        self.compile_makes_graphs = makes_graphs
        self.observer.compiled()

    def as_compiled(self, key: str, module: Module, call: _Call, makes_graphs: bool) -> Value:
        """A compiled call, to be observed as a forward; `module` is None for a function."""
        self.compile_starts(makes_graphs)
        if not self.active:
            return call
        compile_hooks.keep_dynamo_out()
        return compile_hooks.observed_call(self, key, module, call)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, nothing is observed, because what runs is no step: torch traces a model."""
        everywhere, boundary = bool(self._global_ids), self.boundary_hooks
        self._global.close()
        self.observe_everything()
        self._local.close()
        try:
            with self.around_traced():
                yield
        finally:
            if self.active and everywhere and not self.compiling:
                self._hook_every_module()
            elif self.active:
                self._hook_modules()
                if boundary is not None:
                    self.observe_boundaries(boundary)

    def _wrap_tracing(self, original: _Call) -> _Call:
        def trace(*args: Any, **kwargs: Any) -> Value:
            with self.aside():
                return original(*args, **kwargs)

        return trace
