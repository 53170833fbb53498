"""Follows the steps of a pass that only needs their two ends, at the least cost.

What follows a step runs once in two milliseconds, when the processor's caches are full of torch:
on the host of an H200 it takes four to five times as long as in a loop of its own. So every call,
attribute and object between torch and the pass counts.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from itertools import count
from sys import _getframe, getrefcount
from threading import get_ident
from types import FrameType, MethodType
from typing import Any, Literal

from launchscope.runner.child.code_owner import is_torch
from launchscope.runner.child.step_pattern import FORWARD, Pattern
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Module,
    Optimizer,
    Torch,
    Value,
)

# Where torch.nn.Module looks for a call that replaces its own. Unlike a hook, it does not make
# the call of the module slower.
_CALL, _CALLER = "_compiled_call_impl", "_wrapped_call_impl"
# Those to a call that replaces a module's own, while it runs: of the module's dictionary, of what
# takes it back, of its StepBoundaryHooks, of its caller, and of who counts them. With one more, the
# script has copied the dictionary.
_REFERENCES = 5
NO_GRAPH_TASK = -1


_OWN_IDS = count(-(2**62), 100)


@contextlib.contextmanager
def own_hook_ids(torch: Torch) -> Iterator[None]:
    """Inside, up to 100 hooks get ids that none of the script's has.

    A model is saved with the ids of its hooks, which count up: the script's have those of `python`.
    """
    handle = torch.utils.hooks.RemovableHandle
    usual, handle.next_id = handle.next_id, next(_OWN_IDS)
    try:
        yield
    finally:
        handle.next_id = usual


def take_out(handle: Value) -> None:
    """Take a hook of ours out of its table. torch may be walking through that, and fails if what
    comes before the last entry goes: then an empty function takes its place."""
    table = handle.hooks_dict_ref()
    if handle.id == next(reversed(table), None):
        handle.remove()
    elif handle.id in table:
        table[handle.id] = _nothing


def _nothing(*args: Any) -> None: ...


class UncopyableHook(partial):  # type: ignore[type-arg]
    """A hook on one of the script's modules; a copy or a pickle of that module is without it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What replaces it takes any arguments, does nothing, and needs no launchscope where it
        # is loaded.
        return getattr, (contextlib.nullcontext(), "__exit__")


class UncopyableCall(partial):  # type: ignore[type-arg]
    """A call that replaces a module's own; in a copy or a pickle of the module it is None."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "enter_result")


class StepBoundaryHooks:
    """Calls `begin` and `end` where steps of `pattern`, for which that is `enough_for`, do.

    Observes only `thread` (None: no thread), and backwards only if it `counts_backwards`. After an
    optimizer step that belongs to no step, `on_miss` is called, and `on_other` after one of another
    thread.

    A pass may put its own calls in the place of `begin` and `end`. Then `over` is called where
    `end` returned True, and `failed` with an error, which is none of theirs if it returns True.
    """

    def __init__(
        self,
        torch: Torch,
        thread: int | None,
        pattern: Pattern,
        begin: Callable[[], None],
        end: Callable[[], object],
        on_miss: Callable[[], None],
        on_other: Callable[[], None],
        over: Callable[[], None],
        failed: Callable[[Exception], None],
    ):
        self.key = pattern.first.key
        self.thread = thread
        # An opening forward is one of the step's own until it has had its backwards.
        self.counts_backwards = pattern.closing == "optimizer" and pattern.openings > 1
        self.backwards = 0
        self._own_backwards = pattern.backwards if self.counts_backwards else 0
        self._trains, self._training = pattern.first.trains, pattern.first.training
        self._torch = torch
        self._closes_with_optimizer = pattern.closing == "optimizer"
        self._place: Literal["", "forward", "rest"] = ""  # of the step, where the thread is
        self.missed = 0  # optimizer steps outside of any step
        self._saw_other_mode = False  # the opening forward, in the other mode
        self._call: Function | None = None  # that replaces the one of the module
        self.begin, self.end = begin, end
        self._over, self._failed = over, failed
        self._on_miss, self._on_other = on_miss, on_other

    @staticmethod
    def enough_for(pattern: Pattern) -> bool:
        """Whether two events are enough to follow such steps."""
        if pattern.first.kind != FORWARD:
            return False
        if pattern.closing == "forward":
            return pattern.forwards == 1
        return pattern.closing == "optimizer" and pattern.optimizers == 1

    def hook(self, module: Module) -> Callable[[], None] | None:
        """Hook the module whose forward begins a step; the result takes the hook back.

        None if the call of the module was replaced before.
        """
        if module.__dict__.get(_CALL) is not None:
            return None
        restore = replace_call(module, partial(self._around, weakref.ref(module)))
        if restore is None:
            return None
        self._call = module.__dict__[_CALL]

        def take_back() -> None:
            restore()
            self._call = None  # of which there are many: only copies may still call it

        return take_back

    def _around(self, module: Callable[[], Module], call: Function) -> Function:
        ident, grad_enabled = get_ident, self._torch._C.is_grad_enabled
        trains = self._trains
        references = getrefcount

        def called(*args: Any, **kwargs: Any) -> Value:
            if references(self._call) > _REFERENCES:
                own = call_of_copy(module(), _getframe(1))
                if own is not None:
                    return own(*args, **kwargs)
            if ident() != self.thread or grad_enabled() is not trains:
                return call(*args, **kwargs)
            if (module().__dict__.get("training") is not False) is not self._training:
                self._saw_other_mode = True
                return call(*args, **kwargs)
            if self._place and self._goes_on():
                return call(*args, **kwargs)
            self._place = "forward"
            self.backwards = 0
            try:
                try:
                    self.begin()
                except Exception as error:
                    self._failed(error)
                output = call(*args, **kwargs)
            finally:
                self._place = "rest"
            if not self._closes_with_optimizer:
                self._place = ""
                if self.end():
                    self._over()
            return output

        return called

    def _goes_on(self) -> bool:
        """Whether an opening forward is one more of the current step, or one of a module that calls
        itself, or one that a backward runs again for a checkpoint. A step that has had all of its
        own has skipped its end."""
        if self._place == "forward" or self.backwards < self._own_backwards:
            return True
        return bool(self._torch._C._current_graph_task_id() != NO_GRAPH_TASK)

    def optimizer_hook(self) -> Callable[..., None]:
        """What torch is to call after each optimizer step."""
        ident, closes = get_ident, self._closes_with_optimizer

        def stepped(optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
            if ident() != self.thread:
                self._on_other()  # it never raises
                return
            try:
                if closes and self._place:
                    self._place = ""
                    if self.end():
                        self._over()
                else:
                    self._miss()
            except Exception as error:
                self._failed(error)

        return stepped

    def _miss(self) -> None:
        """An optimizer stepped outside of a step: it may have begun unseen, in the mode of an
        evaluation."""
        if self._closes_with_optimizer:
            self.missed += 1
            if self._saw_other_mode:
                self._saw_other_mode = False
                self._training = not self._training
        self._on_miss()


def call_of_copy(module: Module, caller: FrameType) -> Function | None:
    """The own call of a module that has got the one of `module` with a copy of its dictionary."""
    code = caller.f_code
    if code.co_name != _CALLER or not is_torch(code.co_filename):
        return None
    called = caller.f_locals["self"]
    return None if called is module else called._call_impl


def is_replaceable(frame: FrameType | None) -> bool:
    """Whether the call of a module that has called a hook from `frame` came past the place where
    torch looks for a call in its place; a class may pass by in a `__call__` of its own.
    """
    file = frame and frame.f_code.co_filename
    while frame is not None and frame.f_code.co_filename == file:
        if frame.f_code.co_name == _CALLER:
            return True
        frame = frame.f_back
    return False


def replace_call(
    module: Module, around: Callable[[Function], Function]
) -> Callable[[], None] | None:
    """Replace a module's call by what `around` makes of it; the result takes that back.

    None if another library has replaced it. A call that replaces one of ours has to be taken
    back first. Nothing of it keeps the module alive, as long as `around` does not.
    """
    attributes = module.__dict__
    before = attributes.get(_CALL)
    if before is not None and type(before) is not UncopyableCall:
        return None
    # torch leaves it out of copies; classes with a way of their own to copy (DDP) do not.
    call = attributes[_CALL] = UncopyableCall(around(before or _own_call(module)))
    reference = weakref.ref(module)

    def restore() -> None:
        module = reference()
        if module is None or (attributes := module.__dict__).get(_CALL) is not call:
            return
        del attributes[_CALL]
        if before is not None:
            attributes[_CALL] = before

    return restore


def _own_call(module: Module) -> Function:
    """A module's own call. In its dictionary the bound method would keep it alive."""
    own = module._call_impl
    if type(own) is not MethodType or own.__self__ is not module:
        return own
    function, reference = own.__func__, weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Value:
        return function(reference(), *args, **kwargs)

    return update_wrapper(call, function)


def with_own_call(original: Function) -> Function:
    """Around a function that finds the TorchScript type of a module: with a replaced call there is
    none, and files of TorchScript name every type."""

    def called(module: Module, *args: Any, **kwargs: Any) -> Value:
        attributes = module.__dict__
        call = attributes.get(_CALL)
        if type(call) is not UncopyableCall:
            return original(module, *args, **kwargs)
        del attributes[_CALL]
        try:
            return original(module, *args, **kwargs)
        finally:
            attributes[_CALL] = call

    return called
