"""Modes of torch that hand each op, or each call of a torch function, to a callback.

A callback gets the function, `run`, which calls it, and the arguments; it runs the call, or not,
and gives its result. The classes are made on demand, because the script imports torch and not we.
`sys._getframe(3)` in a callback of a function mode is the caller.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import TypeAlias

from launchscope.runner.child.code_owner import is_torch
from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import Args, Function, Kwargs, Mode, Op, Torch, Value

_Callback: TypeAlias = Callable[[Function, Function, Args, Kwargs], Value]


class ForScriptError(Exception):
    """What a callback raises on purpose: the script cannot go on with its step."""


class OwnMode:
    """An error of a callback's own stays here until the mode is left, and is raised there: the call
    runs, once, and no callback is asked any more."""

    error: Exception | None = None
    active = False

    @property
    def _asks(self) -> bool:
        return self.active and self.error is None

    def _ask(
        self, on_call: _Callback, func: Function, call: Function, args: Args, kwargs: Kwargs
    ) -> Value:
        """What `on_call(func, run, args, kwargs)` gives, where `run` is `call`."""
        results: list[Value] = []
        raised: list[BaseException] = []

        def run(*args: Value, **kwargs: Value) -> Value:
            try:
                results.append(call(*args, **kwargs))
            except BaseException as error:
                raised.append(error)
                raise
            return results[-1]

        try:
            return on_call(func, run, args, kwargs)
        except Exception as error:
            if any(error is one for one in raised) or isinstance(error, ForScriptError):
                raise
            self.error = error
        finally:
            raised.clear()  # their frames hold tensors
        return results[-1] if results else call(*args, **kwargs)

    def _left(self) -> None:
        self.active = False
        error, self.error = self.error, None
        if error is not None:
            raise error


def dispatch_mode(on_op: _Callback) -> Mode:
    """A TorchDispatchMode; enter it as a context manager. It does not see what a callback does, nor
    the parts of what that runs. Compiled code runs eagerly meanwhile, in every thread."""
    return _dispatch_class()(on_op)


def function_mode(on_call: _Callback) -> Mode:
    """A TorchFunctionMode; it also sees calls that dispatch no op."""
    return _function_class()(on_call)


@functools.cache
def _dispatch_class() -> Value:
    torch = loaded_torch()
    importlib.import_module("torch._dynamo")  # as torch does for the first op in a mode
    from torch.utils._python_dispatch import TorchDispatchMode

    _see_modes_after_inference(torch)
    higher_order = torch._ops.HigherOrderOperator

    class Dispatch(OwnMode, TorchDispatchMode):
        supports_higher_order_operators = True

        def __init__(self, on_op: _Callback):
            super().__init__()  # type: ignore[no-untyped-call]
            self._on_op = on_op

        def __torch_dispatch__(
            self, func: Op, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            if not self._asks or isinstance(func, higher_order):
                return func(*args, **(kwargs or {}))
            call = _as_called(torch, func)
            with torch._C.DisableTorchFunction():
                return self._ask(self._on_op, func, call, args, kwargs or {})

        def __enter__(self) -> Value:
            self._eager = torch.compiler.set_stance("force_eager")
            self.active = True
            return super().__enter__()  # type: ignore[no-untyped-call]

        def __exit__(self, *error: Value) -> None:
            self._eager.__exit__(*error)
            if not torch._C._len_torch_dispatch_stack():  # a backward has put back those before it
                torch._C._push_on_torch_dispatch_stack(self)
            super().__exit__(*error)  # type: ignore[no-untyped-call]
            self._left()

    return Dispatch


def _as_called(torch: Torch, op: Op) -> Function:
    """Calls an op of which function modes and tensor classes were asked already. What it runs in
    Python, such as an operator of the script, asks them in the present state again."""
    state, set_state = torch._C._get_torch_function_state(), torch._C._set_torch_function_state
    skip_next = getattr(torch._C, "_set_skip_next_torch_function", None)
    if skip_next is None:  # in older versions they are not asked at all
        return op

    def call(*args: Value, **kwargs: Value) -> Value:
        before = torch._C._get_torch_function_state()
        set_state(state)
        skip_next(True)
        try:
            return op(*args, **kwargs)
        finally:
            skip_next(False)  # an op that refuses its arguments has asked nobody
            set_state(before)

    return call


def _see_modes_after_inference(torch: Torch) -> None:
    """The end of `inference_mode` puts back whether ops go to modes, but one of ours may have come
    or gone since its beginning."""
    inference, keys = torch.autograd.grad_mode.inference_mode, torch._C.DispatchKey
    original = inference.__exit__

    @functools.wraps(original)
    def leave(self: Value, *error: Value) -> None:
        original(self, *error)
        seen = torch._C._len_torch_dispatch_stack() > 0
        for key in (keys.Python, keys.PythonTLSSnapshot):
            torch._C._dispatch_tls_set_dispatch_key_included(key, seen)

    inference.__exit__ = leave


@functools.cache
def _function_class() -> Value:
    torch = loaded_torch()
    from torch.overrides import TorchFunctionMode

    ops = torch._ops.OpOverload, torch._ops.OpOverloadPacket

    class Calls(OwnMode, TorchFunctionMode):
        def __init__(self, on_call: _Callback):
            super().__init__()
            self._on_call = on_call

        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            func = called_function(torch, func, sys._getframe(1))
            if not self._asks or isinstance(func, ops):
                return func(*args, **(kwargs or {}))
            return self._ask(self._on_call, func, func, args, kwargs or {})

        def __enter__(self) -> Value:
            self.active = True
            return super().__enter__()  # type: ignore[no-untyped-call]

        def __exit__(self, *error: Value) -> None:
            if not torch._C._len_torch_function_stack():
                torch._C._push_on_torch_function_stack(self)
            super().__exit__(*error)  # type: ignore[no-untyped-call]
            self._left()

    return Calls


def called_function(torch: Torch, func: Function, caller: FrameType) -> Function:
    """The function of torch that was called, for a mode. torch gives it what stands for the name
    now: a wrapper has just called torch's function, and would run twice."""
    if type(func) is not FunctionType or is_torch(func.__code__.co_filename):
        return func
    original = caller.f_back
    if caller.f_code is torch.overrides.handle_torch_function.__code__ and original is not None:
        code = original.f_code
        defaults = (None,) * code.co_argcount  # torch passes on nearly all arguments
        return func if code.co_freevars else FunctionType(code, original.f_globals, None, defaults)
    # Methods in C are asked for by their name in this class alone.
    names = (name for name, value in vars(torch.Tensor).items() if value is func)
    return next((getattr(torch._C.TensorBase, name, func) for name in names), func)


def leave_modes() -> None:
    """Take off the modes of this thread that were left, but that a backward has put back."""
    c = loaded_torch()._C
    dispatch = lambda: c._pop_torch_dispatch_stack(None), c._push_on_torch_dispatch_stack
    function = c._pop_torch_function_stack, c._push_on_torch_function_stack
    lengths = c._len_torch_dispatch_stack(), c._len_torch_function_stack()
    for length, (pop, push) in zip(lengths, (dispatch, function), strict=True):
        for mode in reversed([pop() for _ in range(length)]):
            if not isinstance(mode, OwnMode) or mode.active:
                push(mode)
