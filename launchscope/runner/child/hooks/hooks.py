"""Turns what torch does in the person's process into events for an observer.

During the search global module hooks see every outermost forward. For the measurement
they are replaced by hooks on the few modules that matter, because a global hook costs
on every module call. Nothing happens in forked children and in threads that are not observed.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any, Protocol, TypeAlias, cast

from launchscope.model import SourceLine
from launchscope.runner.child.hooks.boundary_hooks import (
    StepBoundaryHooks,
    UncopyableHook,
    is_part_of,
    replace_call,
)
from launchscope.runner.child.hooks.compile_hooks import (
    forget_wrappers_in_dynamo,
    keep_dynamo_out,
    observed_call,
    wrap_compile,
    wrap_module_compile,
)
from launchscope.runner.child.hooks.dataloader_hook import wrap_fetch
from launchscope.runner.child.hooks.modules import ModuleKeys, is_weighted
from launchscope.runner.child.hooks.patches import patches
from launchscope.runner.child.hooks.thread_selector import ThreadSelector
from launchscope.runner.child.source_lines import user_line
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Hook,
    Kwargs,
    Module,
    Optimizer,
    Owner,
    Torch,
    Value,
)

# The frame of torch's wrapper around an optimizer step, by its id: the frame itself would keep
# alive what a script frees after running out of memory. A later frame with the same id and code
# does not go unnoticed, because the hook before the step is called from each of those.
_StepFrame: TypeAlias = tuple[int, CodeType]


class StepObserver(Protocol):
    """Gets the events of a script at the outermost level only; may raise StopRun."""

    def forward_begin(
        self, key: str, module: Module | None, args: Args, kwargs: Kwargs
    ) -> None: ...
    def forward_end(self, key: str, module: Module | None) -> None: ...
    def backward_begin(self) -> None: ...
    def backward_end(self) -> None: ...
    def optimizer_begin(self, key: str, optimizer: Optimizer) -> None: ...
    def optimizer_end(self, key: str, optimizer: Optimizer) -> None: ...
    def fetch_begin(self) -> None: ...
    def compiled(self) -> None: ...


class _NoObserver:
    """Ignores every event."""

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *details: None


NO_OBSERVER: StepObserver = cast(StepObserver, _NoObserver())


class Hooks:
    """Owns every hook and patch; `observer` may be swapped, `remove` takes all of it back."""

    def __init__(self, torch: Torch, observer: StepObserver):
        self.torch = torch
        self.observer = observer
        self.active = True
        # What was seen of the script.
        self.compiling = False
        self.compile_makes_graphs = False  # in the mode of the last torch.compile
        self.user_profiler = False
        self.graph_replays = 0
        self.processes = 0  # that the script started, without DataLoader workers
        self.scheduler_where: SourceLine | None = None
        self.inside_optimizers: set[str] = set()  # "forward", "optimizer": seen in the search
        self.steps_in_backward = False  # optimizers step as gradients come: no events of their own
        self.optimizers: dict[str, Optimizer] = {}
        self.forwards = 0  # outermost ones
        # Finding a line takes microseconds: only in the search and where lines are read.
        self.wants_lines = True
        self.backward_where: SourceLine | None = None
        # The state of the observed thread, and the threads beside it.
        self.thread: int | None = None  # None before its first event
        self.threads = ThreadSelector()
        self.depth = 0  # of nested forwards
        self.in_fetch = False  # a data loader is making a batch
        self.fetching_threads: set[int] = set()  # that make a batch before a thread is observed
        self._in_backward = False
        self._step: _StepFrame | None = None  # the outermost optimizer step; it may have raised
        # Hooks and patches.
        self.boundary_hooks: StepBoundaryHooks | None = None
        self._modules = ModuleKeys()
        self._optimizer_keys: weakref.WeakKeyDictionary[Optimizer, str] = (
            weakref.WeakKeyDictionary()
        )
        self._undo: list[Callable[[], None]] = []
        self._global: list[Hook] = []
        self._local: list[Hook] = []
        self._watched: frozenset[str] = frozenset()
        self._process = os.getpid()
        # Such a callback cannot be taken back, so it must not keep the script's models alive.
        deactivate = weakref.WeakMethod(self._deactivate)
        os.register_at_fork(after_in_child=lambda: (call := deactivate()) and call())

    # ---------------------------------------------------------------- set up, take down

    def install(self) -> None:
        torch = self.torch
        import torch.utils.data.dataloader as dataloader  # torch is loaded: the script did it

        self._global = [
            torch.nn.modules.module.register_module_forward_pre_hook(self._global_pre),
            torch.nn.modules.module.register_module_forward_hook(
                self._global_post, always_call=True
            ),
        ]
        # torch.optim hides its submodule of that name.
        self._optim = sys.modules["torch.optim.optimizer"]
        self._before_optimizer = self._hook_before_optimizers()
        after = self._optim.register_optimizer_step_post_hook(self._optimizer_post)
        self._undo += [lambda: self._before_optimizer.remove(), after.remove]
        # That of a tensor is observed before any function mode sees it: the event may end a pass
        # that has one on.
        self._backwards = []
        for owner in (torch.autograd, torch.Tensor):
            own = owner.backward
            self._wrap(owner, "backward", self._wrap_backward)
            self._backwards.append((owner, own, owner.backward))
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", partial(wrap_fetch, self))
        self._wrap(torch, "compile", partial(wrap_compile, self))
        self._wrap(torch.nn.Module, "compile", partial(wrap_module_compile, self))
        for owner, name, wrapper in patches(torch):
            self._wrap(owner, name, partial(wrapper, self))

    def _wrap(self, owner: Owner, name: str, around: Callable[[Function], Function]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        setattr(owner, name, functools.wraps(original)(around(original)))
        self._undo.append(lambda: setattr(owner, name, original))

    def remove(self) -> None:
        """Take every hook and patch back, so that the script goes on as if alone."""
        self.active = False
        self._remove_global_hooks()
        self._remove_module_hooks()
        while self._undo:
            self._undo.pop()()
        forget_wrappers_in_dynamo()
        # Whoever kept a wrapper of ours keeps this object, but nothing of the script's.
        self.observer = NO_OBSERVER
        self._modules.clear()
        self.optimizers = {}

    def _deactivate(self) -> None:
        self.active = False
        if self.boundary_hooks is not None:
            self.boundary_hooks.thread = None

    def watch_modules(self, keys: frozenset[str]) -> frozenset[str]:
        """Swap the global module hooks for hooks on the modules named by `keys`.

        Returns the keys that can really be observed from now on.
        """
        self._remove_global_hooks()
        self.wants_lines = False
        if self.compiling:
            return keys
        self._watched = keys
        return self._hook_modules()

    def stop_watching_modules(self) -> None:
        """Observe no module any more, but backwards and optimizer steps as before."""
        self.observe_everything()
        self._watched = frozenset()
        self._remove_module_hooks()
        self.depth = 0  # the end of a forward that is under way is not observed

    def _hook_modules(self) -> frozenset[str]:
        seen = set()
        for key in self._watched:
            module = self._modules.get(key)
            if module is None:
                continue
            if isinstance(module, self.torch.jit.ScriptModule):
                # TorchScript takes no hooks on single modules, but its call can be replaced.
                around = partial(observed_call, self, key, module)
                handle = replace_call(module, around, over_ours=True)
                if handle is not None:
                    self._local.append(handle)
                    seen.add(key)
                continue
            seen.add(key)
            self._local += [
                module.register_forward_pre_hook(
                    UncopyableHook(self._local_pre, key), with_kwargs=True, prepend=True
                ),
                module.register_forward_hook(
                    UncopyableHook(self._local_post, key), always_call=True
                ),
            ]
        return frozenset(seen)

    def observe_boundaries(self, boundary: StepBoundaryHooks) -> bool:
        """Observe only where steps begin and end; False if that is not possible."""
        module = self._modules.get(boundary.key)
        if module is None or self.compiling or boundary.key not in self._watched:
            return False
        # Such a forward, or such a step, looks like an end of the step and is none.
        others = (self._modules.get(key) for key in self._watched)
        if self.inside_optimizers or is_part_of(module, (o for o in others if o is not None)):
            return False
        handle = boundary.hook(module)
        if handle is None:
            return False
        self._remove_module_hooks()
        self._local = [handle]
        # The hook after the step stays: this may be called from it, while torch walks through
        # its table.
        self._before_optimizer.remove()
        if not boundary.counts_backwards:
            for owner, own, wrapped in self._backwards:
                _swap_backward(owner, wrapped, own)
        self.boundary_hooks = boundary
        return True

    def observe_everything(self) -> None:
        """Observe every event again; takes back `observe_boundaries`."""
        if self.boundary_hooks is not None:
            self.boundary_hooks = None
            self._remove_module_hooks()
            self._hook_modules()
            self._before_optimizer = self._hook_before_optimizers()
            for owner, own, wrapped in self._backwards:
                _swap_backward(owner, own, wrapped)

    def _hook_before_optimizers(self) -> Hook:
        return self._optim.register_optimizer_step_pre_hook(self._optimizer_pre)

    def _remove_global_hooks(self) -> None:
        while self._global:
            self._global.pop().remove()

    def _remove_module_hooks(self) -> None:
        while self._local:
            self._local.pop().remove()

    # -------------------------------------------------------------------------- helpers

    def ignores_thread(self) -> bool:
        """True where events are not observed: in a forked child, at the end, in other threads."""
        if not self.active:
            return True
        thread = threading.get_ident()
        if self.thread is None and thread not in self.fetching_threads:
            self.thread = thread
        return thread != self.thread

    def on_script_thread(self) -> bool:
        """True in the thread, and in the process, whose steps are measured."""
        return threading.get_ident() == self.thread and os.getpid() == self._process

    def not_a_step(self) -> bool:
        """True where a forward is no event of its own: in another thread, or inside of another."""
        # As `ignores_thread` does: one call less is two microseconds less in every step.
        if (not self.active or threading.get_ident() != self.thread) and self.ignores_thread():
            return True
        if self._in_backward or self.in_fetch:
            return True
        return self._step is not None and self._in_step(sys._getframe(1))

    def _in_step(self, frame: FrameType | None) -> bool:
        """Whether `frame` is below the optimizer step; forgets a step that raised.

        torch calls no hook after a step that raised, so only the frames can say it.
        """
        step = self._step
        while step is not None and frame is not None:
            if step == (id(frame), frame.f_code):
                return True
            frame = frame.f_back
        self._step = None
        return False

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer step is under way."""
        return self._step is not None

    def module_key(self, module: Module) -> str:
        """A name of this module that is stable over steps."""
        return self._modules.key(module)

    def modules(self) -> list[Module]:
        """Outermost modules seen so far that are still alive."""
        return self._modules.alive()

    # ---------------------------------------------------------------------- the forward

    def _global_pre(self, module: Module, args: Args) -> None:
        if self.not_a_step():
            if self._step is not None:
                self.inside_optimizers.add("forward")
            if not self._switches_thread(module):
                return
        self.depth += 1
        if self.depth == 1:
            self.threads.observed_one()
            # A global hook does not get the keyword inputs; its caller holds them.
            kwargs = sys._getframe(1).f_locals.get("kwargs") or {}
            self.observer.forward_begin(self._search_key(module), module, args, kwargs)

    def _switches_thread(self, module: Module) -> bool:
        """Whether this forward is another thread's, and that thread is observed from now on."""
        thread = threading.get_ident()
        busy = self.depth or self._in_backward or self.in_fetch or self._step is not None
        if thread == self.thread or busy or not self.active:
            return False
        if self.threads.begins(thread, module):
            self.thread = thread
        return thread == self.thread

    def _global_post(self, module: Module, args: Args, output: Value) -> None:
        if self.not_a_step():
            if (thread := threading.get_ident()) != self.thread:
                self.threads.ends(thread)
            return
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.observer.forward_end(self._search_key(module), module)

    def _search_key(self, module: Module) -> str:
        if is_weighted(module):
            return self.module_key(module)
        # A loss is often made anew in every step: its class is what repeats.
        return type(module).__name__

    def _local_pre(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        if self.not_a_step():
            return
        self.depth += 1
        if self.depth == 1:
            self.observer.forward_begin(key, module, args, kwargs)

    def _local_post(self, key: str, module: Module, args: Args, output: Value) -> None:
        if self.not_a_step():
            return
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.observer.forward_end(key, module)

    # ------------------------------------------------------- backward, optimizer, compile

    def _wrap_backward(self, original: Function) -> Function:
        def backward(*args: Any, **kwargs: Any) -> Value:
            if self._in_backward or self.ignores_thread():
                return original(*args, **kwargs)
            if self._step is not None and self._in_step(sys._getframe(1)):
                return original(*args, **kwargs)
            boundary = self.boundary_hooks
            if boundary is None:
                if self.wants_lines:
                    self.threads.observed_one(trains=True)
                    self.backward_where = user_line(sys._getframe(1))
                self.observer.backward_begin()
            self._in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._in_backward = False
            if boundary is None:
                self.observer.backward_end()
            else:
                boundary.backwards += 1
            return result

        return backward

    def _optimizer_key(self, optimizer: Optimizer) -> str:
        key = self._optimizer_keys.get(optimizer)
        if key is None:
            key = f"{type(optimizer).__name__}@{len(self._optimizer_keys)}"
            self._optimizer_keys[optimizer] = key
            self.optimizers[key] = optimizer
        return key

    def _optimizer_pre(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        if self._in_backward and self.active:  # in whichever thread the gradient came
            self.steps_in_backward = True
            self._optimizer_key(optimizer)
            return
        if self.ignores_thread():
            return
        wrapper = sys._getframe(1)
        if self._step is not None and self._in_step(wrapper.f_back):
            self.inside_optimizers.add("optimizer")
            return
        self._step = id(wrapper), wrapper.f_code
        self.observer.optimizer_begin(self._optimizer_key(optimizer), optimizer)

    def _optimizer_post(self, optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        boundary = self.boundary_hooks
        if boundary is not None:
            # Done here: a method of its own would be one call more in every step.
            if boundary.closes_with_optimizer and threading.get_ident() == boundary.thread:
                if boundary.inside:
                    boundary.inside = False
                    boundary.end()
                else:
                    boundary.miss()
            return
        if self._in_backward or self.ignores_thread():
            return
        if self._step is not None and self._step[0] == id(sys._getframe(1)):
            self._step = None
            self.observer.optimizer_end(self._optimizer_key(optimizer), optimizer)

    def compile_starts(self, mode: str | None) -> None:
        """From the first torch.compile on no global module hook may be left.

        Present at the first call they make Dynamo guard on them, and it would compile
        again when they go (in the middle of the timing).
        """
        if not self.compiling:
            self.compiling = True
            self.observe_everything()  # what compiles replaces the call that shows the boundary
            self._remove_global_hooks()
        self.compile_makes_graphs = mode in ("reduce-overhead", "max-autotune")
        self.observer.compiled()

    def as_compiled(self, key: str, module: Module, call: Function, mode: str | None) -> Function:
        """A compiled call of a module, to be observed as its forward."""
        self.compile_starts(mode)
        keep_dynamo_out()
        return observed_call(self, key, module, call)


def _swap_backward(owner: Owner, present: Function, wanted: Function) -> None:
    """Put one backward in the place of another, unless the script has put its own there."""
    if owner.backward is present:
        owner.backward = wanted
