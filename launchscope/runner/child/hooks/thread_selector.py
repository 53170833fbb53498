"""Decides which thread of the script is observed."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from typing import Final

from launchscope.runner.child.hooks.modules import is_weighted
from launchscope.runner.child.torch_types import Module

# Another thread is observed after this much of its work, if the observed one has made fewer
# forwards than the few of a trial, or waits.
_SWITCH_AFTER, _TRIED = 8, 3
# So many backwards show that a thread trains without an optimizer of torch. The end of an optimizer
# step shows it at once, and is where the next step begins.
_BACKWARDS = 3

# Whoever waits for another thread, or for work, does it in one of these files.
_THREADING = threading.Thread.join.__code__.co_filename
_OTHERS = ("selectors.py", os.path.join("concurrent", "futures", "thread.py"))
_WAITS: Final = frozenset(
    (_THREADING, *(os.path.join(os.path.dirname(_THREADING), name) for name in _OTHERS))
)


def waits_or_is_over(thread: int | None) -> bool:
    """Whether a thread has ended, or waits in `join()`, for a lock, a queue or an event loop."""
    frame = None if thread is None else sys._current_frames().get(thread)
    return frame is None or frame.f_code.co_filename in _WAITS


class ThreadSelector:
    """A script may try its model in its main thread and train or serve in another, or train in its
    main thread what another one encodes.

    Marked steps win over training, and training wins over forwards alone. Among threads that do the
    same the first one stays observed, unless it has only tried the model, or waits while another
    one works at least as much.
    """

    def __init__(self) -> None:
        self._depth: Counter[int] = Counter()
        # What other threads did since the observed one did something: forwards, and training.
        self._forwards: Counter[int] = Counter()
        self._training: Counter[int] = Counter()
        self._backwards: Counter[int] = Counter()  # of others, until one is known to train
        # What the observed thread did.
        self._made = self._trained = 0
        self._marked = False
        self.unobserved = 0  # outermost forwards of other threads during the search

    # ---------------------------------------------------------------- of other threads

    def begins_forward(self, thread: int, module: Module) -> bool:
        """A forward of another thread begins; True if it is an outermost one of a model."""
        self._depth[thread] += 1
        # Transforms of batches that are fetched ahead are modules too.
        if self._depth[thread] > 1 or not is_weighted(module):
            return False
        self.unobserved += 1
        self._forwards[thread] += 1
        return True

    def ends_forward(self, thread: int) -> None:
        self._depth[thread] = max(0, self._depth[thread] - 1)

    def wins_by_forwards(self, thread: int, observed: int | None) -> bool:
        """Whether that thread is to be observed from now on."""
        made = self._forwards[thread]
        if self._marked or self._trained or made < _SWITCH_AFTER:
            return False
        if self._made >= _TRIED and not (made >= self._made and waits_or_is_over(observed)):
            return False
        self._made = max(self._made, _TRIED)
        self._begin(thread)
        return True

    def wins_by_training(self, thread: int, observed: int | None, optimizer: bool) -> bool:
        """An optimizer step, or else a backward, of another thread is over; True if that thread is
        to be observed from now on."""
        if self._marked:
            return False
        if self._trained:
            self._training[thread] += 1
            made = self._training[thread]
            if made < max(_SWITCH_AFTER, self._trained) or not waits_or_is_over(observed):
                return False
        elif not optimizer:
            self._backwards[thread] += 1
            made = self._backwards[thread]
            if made < _BACKWARDS:
                return False
        else:
            made = 1
        self._begin(thread)
        self._trained = made
        return True

    def wins_by_marks(self, thread: int) -> bool:
        """Another thread marks a step; True if it is to be observed from now on."""
        if self._marked:
            return False
        self._begin(thread)
        return True

    def _begin(self, thread: int) -> None:
        self._depth[thread] = 0
        for counts in (self._forwards, self._training, self._backwards):
            counts.clear()

    # ----------------------------------------------------------- of the observed thread

    def observed_forward(self) -> None:
        self._made += 1
        self._forwards.clear()
        self._training.clear()

    def observed_training(self) -> None:
        """A backward or an optimizer step begins."""
        self._trained += 1
        self._forwards.clear()
        self._training.clear()

    def observed_mark(self) -> None:
        self._marked = True
