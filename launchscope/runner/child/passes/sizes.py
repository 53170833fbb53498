"""Records the input shapes of many steps, their times, and the memory that some of them need."""

from __future__ import annotations

from launchscope.model import SizesResult, TensorShape
from launchscope.runner.child.context import Context
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.passes import Pass
from launchscope.runner.child.torch_types import Event

# Reading the peak memory costs the host tens of microseconds: it is only done for some steps,
# and neither they nor the ones after them are timed.
_MEMORY_EVERY = 5


class SizesPass(Pass[SizesResult]):
    """CUDA events around each step, as in the timing pass; waits for nothing."""

    name = "sizes"
    label = "counting shapes"
    result_type = SizesResult
    order = 15
    on_cpu = True

    def start(self, context: Context) -> None:
        super().start(context)
        self._wanted = self.steps(context.schedule)
        self._inputs: list[tuple[TensorShape, ...]] = []
        self._ended = 0
        self._events: list[Event] = []
        self._peaks: dict[int, float] = {}
        self._held = 0
        if context.on_gpu:
            self._events = timing_events(context.torch, 2 * self._wanted)
            context.torch.cuda.synchronize()

    def begin(self) -> None:
        index = self._ended
        del self._inputs[index:]  # a step that the script broke off does not count
        self._inputs.append(self.context.step_inputs())
        if self.context.on_gpu:
            if index % _MEMORY_EVERY == 0:
                self.context.torch.cuda.reset_peak_memory_stats()
                self._held = self.context.torch.cuda.memory_allocated()
            self._events[2 * index].record()

    def end(self) -> bool:
        index = self._ended
        if self.context.on_gpu:
            self._events[2 * index + 1].record()
            if index % _MEMORY_EVERY == 0:
                peak = self.context.torch.cuda.max_memory_allocated() - self._held
                self._peaks[index] = max(0.0, peak / 2**20)
        self._ended += 1
        return self._ended >= self._wanted

    def finish(self, complete: bool) -> SizesResult | None:
        if not self._ended:
            return None
        inputs = tuple(self._inputs[: self._ended])
        if not self.context.on_gpu:
            return SizesResult(inputs)
        self.context.torch.cuda.synchronize()
        begins, ends = self._events[0::2], self._events[1::2]
        disturbed = [i % _MEMORY_EVERY == 0 for i in range(self._ended)]
        return SizesResult(
            inputs,
            tuple(
                None if disturbed[i] else begins[i].elapsed_time(ends[i])
                for i in range(self._ended)
            ),
            tuple(
                None
                if i == 0 or disturbed[i] or disturbed[i - 1]
                else ends[i - 1].elapsed_time(ends[i])
                for i in range(self._ended)
            ),
            tuple(self._peaks.get(i) for i in range(self._ended)),
        )


PASS = SizesPass
