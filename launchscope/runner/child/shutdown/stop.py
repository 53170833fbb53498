"""Ends the script from inside, even if it swallows the exception that should end it."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.shutdown.deadlock import leave_when_all_wait
from launchscope.runner.child.target import StopRun, is_stop
from launchscope.runner.child.torch_types import Function, Torch, Value

_SWALLOWED_STOPS = 3


def stop_script(torch: Torch, still_to_stop: Callable[[], bool], leave: Callable[[], None]) -> None:
    """Raise StopRun, now and, as an `except:` may swallow it, at the next calls of models
    while `still_to_stop` is true. A `finally:` may call models, but not train them.

    `leave` ends the process at once if that does not help either, or if everything that is left
    of the script waits for what was ended.
    """
    stops = 0

    def stopping(original: Function, may_end_with: bool) -> Function:
        @functools.wraps(original)
        def stop_again(*args: Any, **kwargs: Any) -> Value:
            nonlocal stops
            if not still_to_stop() or (may_end_with and _is_ending()):
                return original(*args, **kwargs)
            stops += 1
            if stops >= _SWALLOWED_STOPS:
                leave()
            raise StopRun

        return stop_again

    show_error = threading.excepthook

    def thread_error(error: threading.ExceptHookArgs) -> None:
        if not issubclass(error.exc_type, StopRun):  # which deserves no traceback
            show_error(error)

    threading.excepthook = thread_error
    leave_when_all_wait(leave)
    for owner, name, may_end_with in (
        (torch.nn.Module, "__call__", True),
        (torch.autograd, "backward", False),
    ):
        setattr(owner, name, stopping(getattr(owner, name), may_end_with))
    raise StopRun


def _is_ending() -> bool:
    """Whether this runs while StopRun ends the script: in a `finally:` or a context manager."""
    error = sys.exc_info()[1]
    while error is not None and not is_stop(error):
        error = vars(BaseException)["__context__"].__get__(error)
    return error is not None
