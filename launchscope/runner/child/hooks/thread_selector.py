"""Decides which thread of the script is observed."""

from __future__ import annotations

import threading
from collections import Counter

from launchscope.runner.child.hooks.modules import is_weighted
from launchscope.runner.child.torch_types import Module

# Another thread is observed after this many outermost forwards, if the observed one has made fewer
# than the few of a trial.
_SWITCH_AFTER, _TRIED = 8, 3


class ThreadSelector:
    """A script may try its model in its main thread and train or serve in another.

    The observed thread changes at most once, and never after the first one has trained.
    """

    def __init__(self) -> None:
        self._depth: Counter[int] = Counter()
        self._made: Counter[int] = Counter()
        self._observed = 0
        self.unobserved = 0  # outermost forwards of other threads
        self._decided = False
        self._lock = threading.Lock()

    def begins(self, thread: int, module: Module) -> bool:
        """A forward of another thread begins; True if that thread is to be observed from now on."""
        self._depth[thread] += 1
        # Transforms of batches that are fetched ahead are modules too.
        if self._depth[thread] > 1 or not is_weighted(module):
            return False
        self.unobserved += 1
        if self._decided:
            return False
        with self._lock:
            self._made[thread] += 1
            switch = self._made[thread] >= _SWITCH_AFTER and not self._decided
            self._decided |= switch
        return switch

    def ends(self, thread: int) -> None:
        self._depth[thread] = max(0, self._depth[thread] - 1)

    def observed_one(self, trains: bool = False) -> None:
        """The observed thread made a forward of its own, or a backward."""
        self._observed += 1
        self._made.clear()
        if trains or self._observed >= _TRIED:
            self._decided = True
