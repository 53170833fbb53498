"""Modes of torch that hand each op, or each call of a torch function, to a callback.

A callback gets the function, `run`, which calls it, and the arguments; it runs the call, or not,
and gives its result. The classes are made on demand, because the script imports torch and not we.
`sys._getframe(3)` in a callback of a function mode is the caller.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, TypeAlias

from launchscope.runner.child.facts.code_owner import is_torch
from launchscope.runner.child.facts.plain_values import loaded_torch
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Op,
    Torch,
    Value,
)

_Callback: TypeAlias = Callable[[Function, Function, Args, Kwargs], Value]


class ForScriptError(Exception):
    """What a callback raises on purpose: the script cannot go on with its step."""


class OwnMode:
    """An error of a callback's own stays here until the mode is left, and is raised there: the call
    runs, once, and no callback is asked any more."""

    def __init__(self, on_call: _Callback):
        super().__init__()
        self._on_call = on_call
        self.active = False
        self.error: Exception | None = None

    def _ask(self, func: Function, args: Args, kwargs: Kwargs) -> Value:
        """What the callback gives for a call of `func`."""
        if not self.active or self.error is not None:
            return func(*args, **kwargs)
        results: list[Value] = []
        raised: list[BaseException] = []

        def run(*args: Value, **kwargs: Value) -> Value:
            try:
                results.append(func(*args, **kwargs))
            except BaseException as error:
                raised.append(error)
                raise
            return results[-1]

        try:
            return self._on_call(func, run, args, kwargs)
        except Exception as error:
            if any(error is one for one in raised) or isinstance(error, ForScriptError):
                raise
            self.error = error
        finally:
            raised.clear()  # their frames hold tensors
        return results[-1] if results else func(*args, **kwargs)

    def __enter__(self) -> Value:
        self.active = True
        return super().__enter__()  # type: ignore[misc]

    def __exit__(self, *error: Value) -> None:
        # A backward in which it was entered has put back the modes of its beginning.
        length, _, push = _stacks()[isinstance(self, _dispatch_class())]
        if not length():
            push(self)
        super().__exit__(*error)  # type: ignore[misc]
        self.active = False
        own, self.error = self.error, None
        if own is not None:
            raise own


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
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(OwnMode, TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Op, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return self._in_parts(func, args, kwargs or {})
            with torch._C.DisableTorchFunction():  # it was asked already
                return self._ask(func, args, kwargs or {})

        def _in_parts(self, func: Op, args: Args, kwargs: Kwargs) -> Value:
            """What a higher-order operator (cond, flex_attention) runs are ops like others."""
            kernel = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
            if kernel is None:
                return func(*args, **kwargs)
            if not _refuses_modes(kernel):
                return self._on_again(kernel)(*args, **kwargs)
            parts = (self._on_again(a) if _is_function(torch, a) else a for a in args)
            return kernel(*parts, **kwargs)

        def _on_again(self, call: Function) -> Function:
            def seen(*args: Value, **kwargs: Value) -> Value:
                torch._C._push_on_torch_dispatch_stack(self)
                try:
                    return call(*args, **kwargs)
                finally:
                    torch._C._pop_torch_dispatch_stack(None)

            return seen

        def __enter__(self) -> Value:
            self._eager = torch.compiler.set_stance("force_eager")
            return super().__enter__()

        def __exit__(self, *error: Value) -> None:
            self._eager.__exit__(*error)
            super().__exit__(*error)

    if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):  # in older versions
        for operator in torch._ops._higher_order_ops.values():
            operator.py_impl(Dispatch)(functools.partial(_in_parts, operator))
    return Dispatch


def _in_parts(operator: Op, mode: Any, *args: Value, **kwargs: Value) -> Value:
    return mode._in_parts(operator, args, kwargs)


def _is_function(torch: Torch, value: Value) -> bool:
    return callable(value) and not isinstance(value, torch.Tensor)


def _refuses_modes(kernel: Function) -> bool:
    """Whether a kernel of a higher-order operator raises an error if it runs in a mode."""
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    return code is not None and "_get_current_dispatch_mode" in code.co_names


def see_modes_after_inference(torch: Torch) -> None:
    """From now on: the end of an `inference_mode` puts back whether ops go to modes, but one of
    ours may have come or gone since its beginning."""
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

    class Calls(OwnMode, TorchFunctionMode):
        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            func = called_function(torch, func, sys._getframe(1))
            return self._ask(func, args, kwargs or {})

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


def _stacks() -> tuple[tuple[Any, Any, Any], ...]:
    """How long it is, how to pop and how to push, of function modes and of dispatch modes."""
    c = loaded_torch()._C
    pop_dispatch = functools.partial(c._pop_torch_dispatch_stack, None)
    return (
        (c._len_torch_function_stack, c._pop_torch_function_stack, c._push_on_torch_function_stack),
        (c._len_torch_dispatch_stack, pop_dispatch, c._push_on_torch_dispatch_stack),
    )


def leave_modes() -> None:
    """Take off the modes of this thread that were left, but that a backward has put back."""
    for length, pop, push in _stacks():
        for mode in reversed([pop() for _ in range(length())]):
            if not isinstance(mode, OwnMode) or mode.active:
                push(mode)
