"""Forwards of threads that are not heard: does the work go on in one of them?"""

from __future__ import annotations

import threading
from collections import Counter

from launchscope.runner.child.hooks.input_shapes import is_weighted

__all__ = ["ThreadSelector"]

# So many outermost forwards of one thread, while the one that is heard made fewer than the few
# that a trial of the model takes.
_AFTER, _TRIED = 8, 3


class ThreadSelector:
    """A script may try its model in its main thread and train or serve in another.

    Another thread is heard at most once, and never when the first has trained: both would be
    in the middle of something.
    """

    def __init__(self) -> None:
        self._depth: Counter[int] = Counter()
        self._made: Counter[int] = Counter()
        self._heard = 0
        self.unheard = 0  # outermost forwards of other threads
        self._decided = self._taken = False
        self._lock = threading.Lock()

    def begins(self, thread: int, module: object) -> bool:
        """A forward of another thread begins; True if that thread is to be heard from it on."""
        self._depth[thread] += 1
        # Transforms of batches that are fetched ahead are modules too.
        if self._depth[thread] > 1 or not is_weighted(module):
            return False
        self.unheard += 1
        if self._decided:
            return False
        with self._lock:
            self._made[thread] += 1
            first = self._made[thread] >= _AFTER and not self._taken
            self._taken |= first
            self._decided |= first
        return first

    def ends(self, thread: int) -> None:
        self._depth[thread] = max(0, self._depth[thread] - 1)

    def heard_one(self, trains: bool = False) -> None:
        """The thread that is heard made a forward of its own, or a backward."""
        self._heard += 1
        self._made.clear()
        if trains or self._heard >= _TRIED:
            self._decided = True
