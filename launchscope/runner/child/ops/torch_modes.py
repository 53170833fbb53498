"""Modes of torch that hand each op, or each call of a torch function, to a callback.

The callback runs it, or not, and gives its result. The classes are made on demand, because the
script imports torch and not we. `sys._getframe(2)` in a callback of a function mode is the caller.
"""

from __future__ import annotations

from collections.abc import Callable

from launchscope.runner.child.torch_types import Args, Function, Kwargs, Mode, Op, Value


def dispatch_mode(on_op: Callable[[Op, Args, Kwargs], Value]) -> Mode:
    """A TorchDispatchMode; enter it as a context manager."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Op, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            return on_op(func, args, kwargs or {})

    mode: Mode = Dispatch
    return mode()


def function_mode(on_call: Callable[[Function, Args, Kwargs], Value]) -> Mode:
    """A TorchFunctionMode; it also sees calls that dispatch no op."""
    from torch.overrides import TorchFunctionMode

    class Calls(TorchFunctionMode):
        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            return on_call(func, args, kwargs or {})

    return Calls()
