"""Records the input shapes of many steps, their times, and the memory that some of them need."""

from __future__ import annotations

from launchscope.model import SizesResult, TensorShape
from launchscope.runner.child.capture.cuda_events import timing_events
from launchscope.runner.child.facts.torch_types import Event
from launchscope.runner.child.passes import Context, Pass

# Reading the peak memory costs the host tens of microseconds: it is only done for some steps,
# and neither they nor the ones after them are timed.
_MEMORY_EVERY = 5


class SizesPass(Pass[SizesResult]):
    """CUDA events around each step, as in the timing pass; waits for nothing."""

    name = "sizes"

    def start(self, context: Context) -> None:
        super().start(context)
        self._inputs: list[tuple[TensorShape, ...]] = []
        self._ended = 0
        self._events: list[Event] = []
        self._peaks: dict[int, float] = {}
        self._held = 0
        if context.on_gpu:
            self._events = timing_events(context.torch, 2 * self.wanted)
            context.synchronize()

    def begin(self) -> None:
        index, cuda = self._ended, self.context.torch.cuda
        del self._inputs[index:]  # a step that the script broke off does not count
        self._inputs.append(self.context.step_inputs())
        if self._events:
            if index % _MEMORY_EVERY == 0:
                cuda.reset_peak_memory_stats()
                self._held = cuda.memory_allocated()
            self._events[2 * index].record()

    def end(self) -> bool:
        index = self._ended
        if self._events:
            self._events[2 * index + 1].record()
            if index % _MEMORY_EVERY == 0:
                peak = self.context.torch.cuda.max_memory_allocated() - self._held
                self._peaks[index] = max(0.0, peak / 2**20)
        self._ended += 1
        return self._ended >= self.wanted

    def finish(self, complete: bool) -> SizesResult | None:
        if not self._ended:
            return None
        inputs = tuple(self._inputs[: self._ended])
        if not self._events:
            return SizesResult(inputs)
        self.context.synchronize()
        begins, ends = self._events[0::2], self._events[1::2]
        step_ms: list[float | None] = [None] * self._ended
        iteration_ms = list(step_ms)
        for i in range(1, self._ended):
            if i not in self._peaks:
                step_ms[i] = begins[i].elapsed_time(ends[i])
                if i - 1 not in self._peaks:
                    iteration_ms[i] = ends[i - 1].elapsed_time(ends[i])
        peaks = tuple(map(self._peaks.get, range(self._ended)))
        return SizesResult(inputs, tuple(step_ms), tuple(iteration_ms), peaks)


PASS = SizesPass
