"""The wrapper around what fetches a batch from a data loader."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from launchscope.runner.child.torch_types import Function, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks


def wrap_fetch(hooks: Hooks, original: Function) -> Function:
    """Around `__next__` of a data loader's iterator."""

    def fetched(iterator: Value) -> Value:
        batch = original(iterator)
        if hooks.wants_lines and hooks.active:
            try:
                hooks.epochs.fetched(iterator)
            except Exception as error:
                hooks.broke(error)
        return batch

    def fetch(iterator: Value) -> Value:
        thread = get_ident()
        if hooks.in_fetch or hooks.thread != thread or not hooks.active:
            return fetched(iterator)
        try:
            hooks.observer.fetch_begin()
        except Exception as error:
            hooks.broke(error)
        hooks.in_fetch, boundary = True, hooks.boundary_hooks
        if boundary is not None:
            boundary.thread = None
        try:
            return fetched(iterator)
        finally:
            if hooks.thread == thread:  # otherwise another one is observed since
                hooks.in_fetch = False
            if boundary is not None:
                boundary.thread = thread

    return fetch
