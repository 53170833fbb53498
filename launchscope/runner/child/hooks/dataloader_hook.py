"""The wrapper around what fetches a batch from a data loader."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from launchscope.runner.child.hooks.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.hooks.observer import StepObserver


class FetchObserver(Protocol):
    """Who hears of it."""

    listener: StepObserver
    active: bool
    in_fetch: bool
    fetching: set[int]  # threads that make a batch while it is open which thread is heard
    ends: StepBoundaryHooks | None

    @property
    def thread(self) -> int | None: ...


def observe_fetch(hearer: FetchObserver, original: Any) -> Any:
    """Around `__next__` of a data loader's iterator."""

    def fetch(iterator: Any) -> Any:
        thread = threading.get_ident()
        if hearer.thread is None and thread not in hearer.fetching:
            # Batches may be fetched ahead, for another thread: neither this nor a forward in it
            # says which thread is heard.
            hearer.fetching.add(thread)
            try:
                return original(iterator)
            finally:
                hearer.fetching.discard(thread)
        if hearer.in_fetch or hearer.thread != thread or not hearer.active:
            return original(iterator)
        hearer.listener.fetch_begin()
        hearer.in_fetch, ends = True, hearer.ends
        if ends is not None:
            ends.hear = None
        try:
            return original(iterator)
        finally:
            hearer.in_fetch = False
            if ends is not None:
                ends.hear = thread

    return fetch
