"""Times consecutive steps with nothing else going on: no profiler, no synchronisation inside."""

from __future__ import annotations

import random
from time import perf_counter_ns

from launchscope.model import TimingResult
from launchscope.runner.child.context import Context
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.passes import Pass

# A step whose host time is this short feels what recording an event costs: 8 to 10 us on the host
# of an H200, which finds its caches full of torch, and not the 2 us of a loop of nothing else.
_SHORT_NS = 4_000_000
_BEGINS_APART = 3


class TimingPass(Pass[TimingResult]):
    """CUDA events and host clocks around each step, read after the pass.

    Short steps have the event at their end, which times the iterations, but only one in three
    has the one at its begin: with both, the timing would slow them by over 1 %.
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
        cuda = context.torch.cuda
        self._wanted = wanted = self.steps(context.schedule)
        # All there is to write to and to call is made here: a step pays for as little as can be.
        begins, ends = (timing_events(context.torch, wanted) for _ in range(2))
        self._gpu_begin, self._gpu_end = begins, ends
        self._record_begin = [event.record for event in begins]
        self._record_end = [event.record for event in ends]
        self._tells_kinds = bool(context.boundary.kinds)
        self._has_begin = self._drawn()
        self._host_begin, self._host_end = [0] * wanted, [0] * wanted
        self._kind = [0] * wanted
        self._done = 0
        (self._opening,) = timing_events(context.torch, 1)
        cuda.synchronize()
        self._host_open = perf_counter_ns()
        self._opening.record()

    def _drawn(self) -> list[bool]:
        """Of each step, whether it has an event at its begin however short it is."""
        # Drawn, so as not to keep time with whatever the script does every so many steps.
        draw = random.Random(0).randrange
        apart = range(_BEGINS_APART, self._wanted, _BEGINS_APART)
        # The first always: it may be the only one that the script makes, or that is asked for.
        drawn = {0, *(at + draw(_BEGINS_APART) for at in apart)}
        return [self._tells_kinds or step in drawn for step in range(self._wanted)]

    def begin(self) -> None:
        # A step that was begun and not ended is written over.
        index, before = self._done, self._done - 1
        self._host_begin[index] = perf_counter_ns()
        if self._has_begin[index] or self._host_end[before] - self._host_begin[before] >= _SHORT_NS:
            self._record_begin[index]()
            self._has_begin[index] = True

    def end(self) -> bool:
        index = self._done
        self._record_end[index]()
        self._host_end[index] = perf_counter_ns()
        if self._tells_kinds:
            self._kind[index] = self.context.step_kind()
        self._done = index + 1
        return self._done >= self._wanted

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
            kind=tuple(self._kind[:steps]) if self._tells_kinds else (),
            complete=complete,
        )


PASS = TimingPass
