"""Ends the script from inside, even if it swallows the exception that should end it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.shutdown.deadlock import leave_when_all_wait
from launchscope.runner.child.target import StopRun
from launchscope.runner.child.torch_types import Function, Torch, Value

_SWALLOWED_STOPS = 3


class Stopping:
    """An `except:` in the script may swallow StopRun: the next model call raises it again.

    `leave` ends the process at once if that does not help either, or if everything that is left
    of the script waits for what was ended.
    """

    def __init__(self, torch: Torch, hooks: Hooks, leave: Callable[[], None]):
        self._hooks = hooks
        self._leave = leave
        self._stops = 0
        leave_when_all_wait(leave)
        for owner, name in ((torch.nn.Module, "__call__"), (torch.autograd, "backward")):
            setattr(owner, name, self._stopping(getattr(owner, name)))

    def _stopping(self, original: Function) -> Function:
        @functools.wraps(original)
        def stop_again(*args: Any, **kwargs: Any) -> Value:
            if not self._hooks.on_script_thread():
                return original(*args, **kwargs)
            self._stops += 1
            if self._stops >= _SWALLOWED_STOPS:
                self._leave()
            raise StopRun

        return stop_again
