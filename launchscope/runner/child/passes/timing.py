"""Times consecutive steps without a profiler and without synchronization between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import perf_counter_ns

from launchscope.model import TimingResult
from launchscope.runner.child.capture.cuda_events import timing_events
from launchscope.runner.child.facts.loader_workers import between, worker_times
from launchscope.runner.child.passes import Context, Pass

# The cost of recording an event matters in a step that is shorter than this: 8 to 10 us on
# the host of an H200, whose caches are full of torch, and not the 2 us of a loop of its own.
_SHORT_S = 0.004
_STEPS_PER_BEGIN = 3


class TimingPass(Pass[TimingResult]):
    """CUDA events and host clocks around each step, read after the pass.

    Short steps have the event at their end, which times the iterations, but only one in three
    has one at its beginning: with both, the timing would slow them by over 1 %.
    """

    name = "timing"
    boundaries_only = True
    direct = True

    def start(self, context: Context) -> None:
        super().start(context)
        wanted = self.wanted
        self._gpu_begin = timing_events(context.torch, wanted)
        self._gpu_end = timing_events(context.torch, wanted)
        self._has_kinds = context.has_kinds
        self._has_begin = self._drawn()
        self._host_begin, self._host_end = [0] * wanted, [0] * wanted
        self._kind = [0] * wanted
        self.begin, self.end = self._recorder()  # type: ignore[method-assign]
        (self._opening,) = timing_events(context.torch, 1)
        context.torch.cuda.synchronize()
        self._loading = worker_times()
        self._host_open = perf_counter_ns()
        self._opening.record()

    def _drawn(self) -> list[bool]:
        """For each step, whether it has an event at its beginning."""
        if self._has_kinds or self.context.step_s >= _SHORT_S:
            return [True] * self.wanted
        # Drawn at random, so that they do not fall on what the script does every so many steps.
        draw = random.Random(0).randrange
        starts = range(_STEPS_PER_BEGIN, self.wanted, _STEPS_PER_BEGIN)
        # Always the first: it may be the only step that the script makes, or that was asked for.
        drawn = {0, *(at + draw(_STEPS_PER_BEGIN) for at in starts)}
        return [step in drawn for step in range(self.wanted)]

    @property
    def seen(self) -> int:
        return self.wanted - self._host_end.count(0)

    def begin(self) -> None:
        raise NotImplementedError  # `start` replaces this and `end` by functions of `_recorder`

    def end(self) -> bool:
        raise NotImplementedError

    def _recorder(self) -> tuple[Callable[[], None], Callable[[], bool]]:
        """What a step calls at its two ends. All that they use is in variables of their own, so
        that they read as little memory as possible."""
        begun, ended = self._host_begin, self._host_end
        pairs = zip(self._gpu_begin, self._has_begin, strict=True)
        record_begin = [event.record if has else None for event, has in pairs]
        record_end = [event.record for event in self._gpu_end]
        now, index, wanted = perf_counter_ns, 0, self.wanted

        def begin() -> None:
            # This overwrites a step that the script broke off.
            begun[index] = now()
            if record := record_begin[index]:
                record()

        def end() -> bool:
            nonlocal index
            record_end[index]()
            ended[index] = now()
            index += 1
            return index == wanted

        if not self._has_kinds:
            return begin, end
        kinds, kind_of = self._kind, self.context.step_kind

        def end_with_kind() -> bool:
            kinds[index] = kind_of()
            return end()

        return begin, end_with_kind

    def finish(self, complete: bool) -> TimingResult | None:
        self.context.torch.cuda.synchronize()
        closed = perf_counter_ns()
        steps = self.seen
        if steps == 0:
            return None
        if not complete:  # the script went on to other things before it ended
            closed = self._host_end[steps - 1]
        workers, cpu_ns = between(self._loading, worker_times())
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
            loader_workers=workers,
            loader_cpu_ns=cpu_ns,
        )


PASS = TimingPass
