"""Turns what torch does in the user's process into events for a listener.

During the search global module hooks see every outermost forward. For the measuring
they are replaced by hooks on the few modules that matter, because a global hook costs
on every module call. Inert in forked children and in threads other than the first.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from launchscope.model import SourceLine
from launchscope.runner.child.hooks.boundary_hooks import (
    StepBoundaryHooks,
    hook_call,
    is_part_of,
    swap_backward,
)
from launchscope.runner.child.hooks.compiled_calls import (
    around_compile,
    around_module_compile,
    observed_call,
)
from launchscope.runner.child.hooks.dataloader_hook import observe_fetch
from launchscope.runner.child.hooks.dynamo import keep_dynamo_out, let_dynamo_look_again
from launchscope.runner.child.hooks.frame_guard import StepFrame, is_running
from launchscope.runner.child.hooks.input_shapes import is_weighted
from launchscope.runner.child.hooks.module_keys import ModuleKeys
from launchscope.runner.child.hooks.observer import NOBODY, StepObserver
from launchscope.runner.child.hooks.patches import patches
from launchscope.runner.child.hooks.thread_selector import ThreadSelector
from launchscope.runner.child.hooks.uncopyable_hook import UncopyableHook
from launchscope.runner.child.source_lines import user_line


class Hooks:
    """Owns every hook and patch; `listener` may be swapped, `remove` takes all of it back."""

    def __init__(self, torch: Any, listener: StepObserver):
        self.torch = torch
        self.listener = listener
        self.compiling = False
        self.compile_makes_graphs = False  # in the mode of the last torch.compile
        self.user_profiler = False
        self.graph_replays = 0
        self.processes = 0  # that the script started, DataLoader workers apart
        self.scheduler_where: SourceLine | None = None
        self.inside_optimizers: set[str] = set()  # "forward", "optimizer": seen in the search
        self.steps_in_backward = False  # optimizers step as gradients come: no events of their own
        self.optimizers: dict[str, Any] = {}
        # Finding a line takes microseconds: only in the search and where they are read.
        self.wants_lines = True
        self.backward_where: SourceLine | None = None
        self._modules = ModuleKeys()
        self._optimizer_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._undo: list[Callable[[], None]] = []
        self._global: list[Any] = []
        self._local: list[Any] = []
        self._narrowed: frozenset[str] = frozenset()
        self.ends: StepBoundaryHooks | None = None
        self.active = True
        self._process = os.getpid()
        self._thread: int | None = None
        self.others = ThreadSelector()
        self.depth = 0
        self.forwards = 0  # outermost ones heard
        self._step: StepFrame | None = None  # the outermost optimizer step; it may have raised
        self._in_backward = False
        self.in_fetch = False  # a data loader is making a batch
        self.fetching: set[int] = set()  # threads that make a batch before any is heard
        # Such a callback cannot be taken back, so it must not keep the script's models alive.
        quiet = weakref.WeakMethod(self._go_quiet)
        os.register_at_fork(after_in_child=lambda: (call := quiet()) and call())

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
        # Of a tensor, it is heard before any function mode is: a pass that has one on may end it.
        self._backwards = []
        for owner in (torch.autograd, torch.Tensor):
            own = owner.backward
            self._wrap(owner, "backward", self._around_backward)
            self._backwards.append((owner, own, owner.backward))
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", partial(observe_fetch, self))
        self._wrap(torch, "compile", partial(around_compile, self))
        self._wrap(torch.nn.Module, "compile", partial(around_module_compile, self))
        for owner, name, noting in patches(torch):
            self._wrap(owner, name, partial(noting, self))

    def _wrap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        setattr(owner, name, functools.wraps(original)(around(original)))
        self._undo.append(lambda: setattr(owner, name, original))

    def remove(self) -> None:
        """Take every hook and patch back, so that the script goes on as if alone."""
        self.active = False
        for handle in [*self._global, *self._local]:
            handle.remove()
        self._global, self._local = [], []
        while self._undo:
            self._undo.pop()()
        let_dynamo_look_again()
        # Whoever kept a wrapper of ours keeps this object, but nothing of the script's.
        self.listener = NOBODY
        self._modules.clear()
        self.optimizers = {}

    def _go_quiet(self) -> None:
        self.active = False
        if self.ends is not None:
            self.ends.hear = None

    def narrow(self, keys: frozenset[str]) -> frozenset[str]:
        """Swap the global module hooks for hooks on the modules named by `keys`.

        Returns the keys that can really be observed from now on.
        """
        for handle in self._global:
            handle.remove()
        self._global = []
        self.wants_lines = False
        if self.compiling:
            return keys
        self._narrowed = keys
        return self._hook_modules()

    def forget_modules(self) -> None:
        """Hear of no module any more; of backwards and optimizer steps as ever."""
        self.follow_all()
        self._narrowed = frozenset()
        self._unhook_modules()
        self.depth = 0  # the end of a forward that is under way is not heard

    def _hook_modules(self) -> frozenset[str]:
        seen = set()
        for key in self._narrowed:
            module = self._modules.get(key)
            if module is None:
                continue
            seen.add(key)
            if isinstance(module, self.torch.jit.ScriptModule):
                # TorchScript takes no hooks of single modules, but a call that goes before its own.
                around = partial(observed_call, self, key, module)
                if (handle := hook_call(module, around, over_ours=True)) is None:
                    seen.discard(key)
                else:
                    self._local.append(handle)
                continue
            self._local += [
                module.register_forward_pre_hook(
                    UncopyableHook(self._local_pre, key),
                    with_kwargs=True,
                    prepend=True,
                ),
                module.register_forward_hook(
                    UncopyableHook(self._local_post, key), always_call=True
                ),
            ]
        return frozenset(seen)

    def follow_ends(self, ends: StepBoundaryHooks) -> bool:
        """Hear of nothing but where steps begin and end; False if that cannot be."""
        module = self._modules.get(ends.key)
        if module is None or self.compiling or ends.key not in self._narrowed:
            return False
        # Such a forward, or such a step, looks like an end of the step and is none.
        others = (self._modules.get(key) for key in self._narrowed)
        if self.inside_optimizers or is_part_of(module, (o for o in others if o is not None)):
            return False
        handle = ends.hook(module)
        if handle is None:
            return False
        self._unhook_modules()
        self._local = [handle]
        # The hook behind the step stays: this may be called from it, where torch goes through
        # its table.
        self._before_optimizer.remove()
        if not ends.counts_backwards:
            for owner, own, heard in self._backwards:
                swap_backward(owner, heard, own)
        self.ends = ends
        return True

    def follow_all(self) -> None:
        """Hear of every event again; takes back `follow_ends`."""
        if self.ends is not None:
            self.ends = None
            self._unhook_modules()
            self._hook_modules()
            self._before_optimizer = self._hook_before_optimizers()
            for owner, own, heard in self._backwards:
                swap_backward(owner, own, heard)

    def _hook_before_optimizers(self) -> Any:
        return self._optim.register_optimizer_step_pre_hook(self._optimizer_pre)

    def _unhook_modules(self) -> None:
        for handle in self._local:
            handle.remove()
        self._local = []

    # -------------------------------------------------------------------------- helpers

    def deaf(self) -> bool:
        """True where events are not ours to hear: forked, finished, another thread."""
        if not self.active:
            return True
        thread = threading.get_ident()
        if self._thread is None and thread not in self.fetching:
            self._thread = thread
        return thread != self._thread

    @property
    def thread(self) -> int | None:
        """The number of the thread whose events are heard; None before its first."""
        return self._thread

    def on_script_thread(self) -> bool:
        """True in the thread, and in the process, whose steps are measured."""
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def not_a_step(self) -> bool:
        """True where a forward is no event of its own: elsewhere, or inside something else."""
        # As `deaf` does: one call less is two microseconds less in every step.
        if (not self.active or threading.get_ident() != self._thread) and self.deaf():
            return True
        if self._in_backward or self.in_fetch:
            return True
        return self._step is not None and self._in_step(sys._getframe(1))

    def _in_step(self, frame: FrameType | None) -> bool:
        """Whether an optimizer step is really under way; forgets one that raised."""
        if not is_running(self._step, frame):
            self._step = None
        return self._step is not None

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer step is under way."""
        return self._step is not None

    def module_key(self, module: Any) -> str:
        """A name of this module that is stable over steps."""
        return self._modules.key(module)

    def modules(self) -> list[Any]:
        """Outermost modules seen so far that are still alive."""
        return self._modules.alive()

    # ---------------------------------------------------------------------- the forward

    def _global_pre(self, module: Any, args: Any) -> None:
        if self.not_a_step():
            if self._step is not None:
                self.inside_optimizers.add("forward")
            if not self._taken_over(module):
                return
        self.depth += 1
        if self.depth == 1:
            self.others.heard_one()
            # A global hook is not handed the keyword inputs; its caller holds them.
            kwargs = sys._getframe(1).f_locals.get("kwargs") or {}
            self.listener.forward_begin(self._light_key(module), module, args, kwargs)

    def _taken_over(self, module: Any) -> bool:
        """Whether this forward is another thread's, and that thread is heard from now on."""
        thread = threading.get_ident()
        busy = self.depth or self._in_backward or self.in_fetch or self._step is not None
        if thread == self._thread or busy or not self.active:
            return False
        if self.others.begins(thread, module):
            self._thread = thread
        return thread == self._thread

    def _global_post(self, module: Any, args: Any, output: Any) -> None:
        if self.not_a_step():
            if (thread := threading.get_ident()) != self._thread:
                self.others.ends(thread)
            return
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.listener.forward_end(self._light_key(module), module)

    def _light_key(self, module: Any) -> str:
        if is_weighted(module):
            return self.module_key(module)
        # A loss is often made anew in every step: its class is what repeats.
        return type(module).__name__

    def _local_pre(self, key: str, module: Any, args: Any, kwargs: Any) -> None:
        if self.not_a_step():
            return
        self.depth += 1
        if self.depth == 1:
            self.listener.forward_begin(key, module, args, kwargs)

    def _local_post(self, key: str, module: Any, args: Any, output: Any) -> None:
        if self.not_a_step():
            return
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.listener.forward_end(key, module)

    # --------------------------------------------------- backward, optimizer, data loader

    def _around_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._in_backward or self.deaf():
                return original(*args, **kwargs)
            if self._step is not None and self._in_step(sys._getframe(1)):
                return original(*args, **kwargs)
            ends = self.ends
            if ends is None:
                if self.wants_lines:
                    self.others.heard_one(trains=True)
                    self.backward_where = user_line(sys._getframe(1))
                self.listener.backward_begin()
            self._in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._in_backward = False
            if ends is None:
                self.listener.backward_end()
            else:
                ends.backwards += 1
            return result

        return backward

    def _optimizer_key(self, optimizer: Any) -> str:
        key = self._optimizer_keys.get(optimizer)
        if key is None:
            key = f"{type(optimizer).__name__}@{len(self._optimizer_keys)}"
            self._optimizer_keys[optimizer] = key
            self.optimizers[key] = optimizer
        return key

    def _optimizer_pre(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._in_backward and self.active:  # in whichever thread the gradient came
            self.steps_in_backward = True
            self._optimizer_key(optimizer)
            return
        if self.deaf():
            return
        wrapper = sys._getframe(1)
        if self._step is not None and self._in_step(wrapper.f_back):
            self.inside_optimizers.add("optimizer")
            return
        self._step = id(wrapper), wrapper.f_code
        self.listener.optimizer_begin(self._optimizer_key(optimizer), optimizer)

    def _optimizer_post(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        ends = self.ends
        if ends is not None:
            # Done here: a method of its own would be one call more in every step.
            if ends.closes_with_optimizer and threading.get_ident() == ends.hear:
                if ends.inside:
                    ends.inside = False
                    ends.end()
                else:
                    ends.miss()
            return
        if self._in_backward or self.deaf():
            return
        if self._step is not None and self._step[0] == id(sys._getframe(1)):
            self._step = None
            self.listener.optimizer_end(self._optimizer_key(optimizer), optimizer)

    def compile_starts(self, mode: str | None) -> None:
        """From the first torch.compile on no global module hook may be left.

        Present at the first call they make Dynamo guard on them, and it would compile
        again when they go (in the middle of the timing).
        """
        if not self.compiling:
            self.compiling = True
            self.follow_all()  # what compiles takes the place of the call that tells of the ends
            for handle in self._global:
                handle.remove()
            self._global = []
        self.compile_makes_graphs = mode in ("reduce-overhead", "max-autotune")
        self.listener.compiled()

    def as_compiled(self, key: str, module: Any, call: Any, mode: str | None) -> Any:
        """A compiled call of a module, to be heard of as its forward."""
        self.compile_starts(mode)
        keep_dynamo_out()
        return observed_call(self, key, module, call)
