"""Decides which thread of the script is observed."""

from __future__ import annotations

import threading
from collections import Counter

from launchscope.runner.child.clock import clock
from launchscope.runner.child.hooks.modules import is_weighted
from launchscope.runner.child.torch_types import Module

# Another thread is observed after this much of its work, if the observed one has made fewer
# forwards than the few of a trial, or waits.
_SWITCH_AFTER, _TRIED = 8, 3
# So many backwards show that a thread trains without an optimizer of torch. The end of an optimizer
# step shows it at once, and is where the next step begins.
_BACKWARDS = 3

# So long, and so many times the longest pause between its own events, a thread is silent that waits
# for others. Its frames would show that at once, but whoever holds a frame of a running thread may
# be the one that destroys its local variables, and some of torch's have to go in their own thread.
SILENT_S, _PAUSES = 1.0, 4.0


class ThreadSelector:
    """A script may try its model in its main thread and train or serve in another, or train in its
    main thread what another one encodes.

    Marked steps win over training, and training wins over forwards alone. Among threads that do the
    same the first one stays observed, unless it has only tried the model, or has ended or been
    silent for long while another one worked at least as much.
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
        self._last_s, self._pause_s = 0.0, 0.0  # its last event, and the longest pause before one
        self._known = False  # to Python's threading, which forgets a thread that has ended
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
        if self._made >= _TRIED and not (made >= self._made and self.is_over(observed)):
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
            if made < max(_SWITCH_AFTER, self._trained) or not self.is_over(observed):
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
        self._last_s = self._pause_s = 0.0
        self._seen()
        for counts in (self._forwards, self._training, self._backwards):
            counts.clear()

    # ----------------------------------------------------------- of the observed thread

    def is_over(self, observed: int | None) -> bool:
        """Whether the observed thread has ended, or has been silent for long."""
        if self._known and observed not in threading._active:  # type: ignore[attr-defined]
            return True
        silent_s = clock.perf_counter() - self._last_s
        return silent_s >= max(SILENT_S, _PAUSES * self._pause_s)

    def _seen(self) -> None:
        now = clock.perf_counter()
        if self._last_s:
            self._pause_s = max(self._pause_s, now - self._last_s)
        else:
            self._known = threading.get_ident() in threading._active  # type: ignore[attr-defined]
        self._last_s = now
        self._forwards.clear()
        self._training.clear()

    def observed_forward(self) -> None:
        self._made += 1
        self._seen()

    def observed_training(self) -> None:
        """A backward or an optimizer step begins."""
        self._trained += 1
        self._seen()

    def observed_mark(self) -> None:
        self._marked = True
