"""Modes of torch that hand each op, or each call of a torch function, to a callback.

A callback gets the function, `run`, which calls it, and the arguments; it runs the call, or not,
and gives its result. The classes are made on demand, because the script imports torch and not we.
`sys._getframe(3)` in a callback of a function mode is the caller.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

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


class OwnMode:
    """Asks a callback for each call, from the entry of the mode to its exit."""

    def __init__(self, on_call: _Callback):
        super().__init__()
        self._on_call = on_call
        self.active = False

    def _ask(self, func: Function, args: Args, kwargs: Kwargs) -> Value:
        """What the callback gives for a call of `func`."""
        if not self.active:  # a backward in which the mode was left has put it back
            return func(*args, **kwargs)
        return self._on_call(func, func, args, kwargs)

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
                return func(*args, **(kwargs or {}))  # its parts are not seen
            with torch._C.DisableTorchFunction():  # it was asked already
                return self._ask(func, args, kwargs or {})

        def __enter__(self) -> Value:
            # Where nothing was compiled, the stance would only import Dynamo.
            compiles = "torch._dynamo" in sys.modules
            eager = torch.compiler.set_stance if compiles else contextlib.nullcontext
            self._eager = eager("force_eager")
            return super().__enter__()

        def __exit__(self, *error: Value) -> None:
            self._eager.__exit__(*error)
            super().__exit__(*error)

    if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):  # in older versions
        for operator in torch._ops._higher_order_ops.values():
            operator.py_impl(Dispatch)(functools.partial(_as_it_is, operator))
    return Dispatch


def _as_it_is(operator: Op, mode: Mode, *args: Value, **kwargs: Value) -> Value:
    return operator(*args, **kwargs)


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
    from torch.overrides import TorchFunctionMode

    class Calls(OwnMode, TorchFunctionMode):
        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            return self._ask(func, args, kwargs or {})

    return Calls


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
