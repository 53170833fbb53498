"""Times consecutive steps without a profiler and without synchronization between them."""

from __future__ import annotations

import random
from time import perf_counter_ns

from launchscope.model import TimingResult
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.passes import Context, Pass

# The cost of recording an event matters in a step whose host time is this short: 8 to 10 us on
# the host of an H200, whose caches are full of torch, and not the 2 us of a loop of its own.
_SHORT_NS = 4_000_000
_STEPS_PER_BEGIN = 3


class TimingPass(Pass[TimingResult]):
    """CUDA events and host clocks around each step, read after the pass.

    Short steps have the event at their end, which times the iterations, but only one in three
    has one at its beginning: with both, the timing would slow them by over 1 %.
    """

    name = "timing"
    label = "timing"
    result_type = TimingResult
    order = 10
    fewest_steps: int | None = 3
    boundaries_only = True
    depends_on_stream = True

    def start(self, context: Context) -> None:
        super().start(context)
        wanted = self.wanted
        # What the steps write to and call is made here, so that they pay as little as possible.
        self._gpu_begin = timing_events(context.torch, wanted)
        self._gpu_end = timing_events(context.torch, wanted)
        self._record_begin = [event.record for event in self._gpu_begin]
        self._record_end = [event.record for event in self._gpu_end]
        self._has_kinds = context.has_kinds
        self._has_begin = self._drawn()
        self._host_begin, self._host_end = [0] * wanted, [0] * wanted
        self._kind = [0] * wanted
        self._done = 0
        (self._opening,) = timing_events(context.torch, 1)
        context.torch.cuda.synchronize()
        self._host_open = perf_counter_ns()
        self._opening.record()

    def _drawn(self) -> list[bool]:
        """For each step, whether it has an event at its beginning however short it is."""
        # Drawn at random, so that they do not fall on what the script does every so many steps.
        draw = random.Random(0).randrange
        starts = range(_STEPS_PER_BEGIN, self.wanted, _STEPS_PER_BEGIN)
        # Always the first: it may be the only step that the script makes, or that was asked for.
        drawn = {0, *(at + draw(_STEPS_PER_BEGIN) for at in starts)}
        return [self._has_kinds or step in drawn for step in range(self.wanted)]

    def begin(self) -> None:
        # This overwrites a step that the script broke off.
        index, before = self._done, self._done - 1
        self._host_begin[index] = perf_counter_ns()
        if self._has_begin[index] or self._host_end[before] - self._host_begin[before] >= _SHORT_NS:
            self._record_begin[index]()
            self._has_begin[index] = True

    def end(self) -> bool:
        index = self._done
        self._record_end[index]()
        self._host_end[index] = perf_counter_ns()
        if self._has_kinds:
            self._kind[index] = self.context.step_kind()
        self._done = index + 1
        return self._done >= self.wanted

    def finish(self, complete: bool) -> TimingResult | None:
        self.context.torch.cuda.synchronize()
        closed = perf_counter_ns()
        steps = self._done
        if steps == 0:
            return None
        if not complete:  # the script went on to other things before it ended
            closed = self._host_end[steps - 1]
        since = self._opening.elapsed_time
        return TimingResult(
            host_open_ns=self._host_open,
            host_begin_ns=tuple(self._host_begin[:steps]),
            host_end_ns=tuple(self._host_end[:steps]),
            host_close_ns=closed,
            gpu_begin_ms=tuple(
                since(event) if has else None
                for event, has in zip(self._gpu_begin[:steps], self._has_begin, strict=False)
            ),
            gpu_end_ms=tuple(map(since, self._gpu_end[:steps])),
            kind=tuple(self._kind[:steps]) if self._has_kinds else (),
            complete=complete,
        )


PASS = TimingPass
