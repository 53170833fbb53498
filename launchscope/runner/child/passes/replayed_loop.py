"""Runs the script's own loop in windows that alternate between eager steps and replays."""

from __future__ import annotations

from contextlib import ExitStack

from launchscope.model import LoopResult, Reason, Schedule
from launchscope.runner.child.capture.capture import Capture
from launchscope.runner.child.capture.replayed_calls import ReplayedCalls
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.hooks.patching import wrap
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.inspect import InspectPass, usual_steps
from launchscope.runner.child.passes.replay import ReplayPass
from launchscope.runner.child.plain_values import objects_below
from launchscope.runner.child.reasons import reason_of
from launchscope.runner.child.torch_types import Function, Storage, Tensor, Value

_WINDOWS, _ITERATIONS = 4, 8  # of each kind; in a window, of which the first is left out
_MOST_WINDOWS = 16


class ReplayedLoopPass(Pass[LoopResult]):
    """A warm step under the optimizer flags, a capture that writes down the calls of the step, then
    windows. In a replayed window a step is one graph launch, and the script's other code runs as
    ever; the state is put back after it. The process ends after the pass.
    """

    name = "replayed_loop"
    label = "running the loop under replay"
    result_type = LoopResult
    order = 90
    captures = True
    follows = ReplayPass

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return 2 + 2 * _WINDOWS * _ITERATIONS if schedule.replay else 0

    @classmethod
    def cut_off(cls, reason: Reason) -> LoopResult:
        return LoopResult("failed", reason)

    def skip(self, context: Context) -> Skip | None:
        replay = context.result(ReplayPass)
        if replay is None or replay.status != "measured":
            return Skip("skipped", Reason("what_if_replay"))
        return None

    def skipped(self, context: Context, skip: Skip) -> LoopResult:
        return LoopResult("skipped", skip.reason)

    def start(self, context: Context) -> None:
        super().start(context)
        if context.replay is not None:
            context.replay.release()
        self._flags = OptimizerFlags(context.torch, context.optimizers)
        self._calls = ReplayedCalls(context.hooks, context.modules, context.optimizers)
        self._is_usual_step = usual_steps(context)
        self._is_usual = False
        self._capture: Capture | None = None
        self._kept: list[Storage | Tensor] = []
        self._is_warm = False
        self._windows: Windows | None = None

    def begin(self) -> None:
        self._calls.step_begins()
        if self._windows is not None:
            self._windows.step_begins()
            return
        self._is_usual = self._is_usual_step()
        if not self._is_usual:
            return
        if not self._is_warm:
            self._flags.apply()
            return
        self._calls.forget()
        self._capture = Capture(self.context.torch)
        self._keep_alive()
        self._capture.begin()

    def end(self) -> bool:
        self._calls.step_ends()
        if self._windows is not None:
            return self._windows.step_ends()
        if self._capture is not None:
            self._end_capture(self._capture)
        elif self._is_usual and not self._is_warm:
            self._is_warm = True
            self._calls.record()
        return False

    def _keep_alive(self) -> None:
        """Replays read the memory of every tensor that the captured step read."""
        for entry in objects_below(self.context.torch.Tensor):
            if entry.layout == self.context.torch.strided:
                self._kept.append(entry.untyped_storage())

    def _end_capture(self, capture: Capture) -> None:
        context = self.context
        self._keep_alive()
        capture.end()
        self._capture = None
        self._calls.step_is_captured()
        further = dict.fromkeys(context.written_storages)
        state = DeviceState(context.torch, context.modules, context.optimizers, further)
        capture.graph.replay()
        context.torch.cuda.synchronize()
        gradients = Gradients(context)
        self._flags.revert()
        self._windows = Windows(context, capture.graph, self._calls, state, self._flags, gradients)

    def failed_inside_step(self, error: BaseException) -> LoopResult | None:
        return self.failed(error)

    def failed(self, error: BaseException) -> LoopResult:
        self._calls.close()
        return LoopResult("failed", reason_of(error))

    def finish(self, complete: bool) -> LoopResult:
        self._calls.close()
        windows = self._windows
        if windows is None or min(map(len, windows.times)) < 2:
            return LoopResult("failed", Reason("script_ended"))
        eager, replayed = windows.times
        return LoopResult("measured", None, tuple(eager), tuple(replayed), windows.own_ops)


class Gradients:
    """Those of the captured step, which the script may read in a replayed one."""

    def __init__(self, context: Context):
        self._of = [
            (parameter, parameter.grad)
            for optimizer in context.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._before: list[tuple[Tensor, Tensor | None]] = []

    def put_in(self) -> None:
        self._before = [(parameter, parameter.grad) for parameter, _ in self._of]
        for parameter, gradient in self._of:
            parameter.grad = gradient

    def take_out(self) -> None:
        for parameter, gradient in self._before:
            parameter.grad = gradient
        self._before = []


class Windows:
    """Times windows of eager iterations and of replayed ones in turn."""

    def __init__(
        self,
        context: Context,
        graph: Value,
        calls: ReplayedCalls,
        state: DeviceState,
        flags: OptimizerFlags,
        gradients: Gradients,
    ):
        self._torch, self._graph, self._calls = context.torch, graph, calls
        self._state, self._flags, self._gradients = state, flags, gradients
        self.times: tuple[list[float], list[float]] = [], []  # eager, replayed
        self.own_ops: int | None = None
        self._undo = ExitStack()
        self._replays = False
        self._left_out = queued_batches(self._torch) or 1
        self._length = self._left_out + max(_ITERATIONS - 1, self._left_out)
        self._events = timing_events(self._torch, self._length)
        self._done = 0  # steps of this window
        self._made = 0  # windows
        self._is_void = False
        self._context = context
        self._more: list[tuple[Tensor, Tensor]] = []

    def _further_inputs(self) -> list[tuple[Tensor, Tensor]]:
        """In place of inputs that no module gets, such as labels: two tensors of the same size."""
        inspect, known = self._context.result(InspectPass), self._calls.input_bytes
        if inspect is None or inspect.input_tensors is None:
            return []
        count = max(0, inspect.input_tensors - len(known))
        size = max(0, (inspect.input_bytes or 0) - sum(known)) // max(count, 1)
        return [
            tuple(self._torch.empty(size, dtype=self._torch.uint8, device="cuda") for _ in "ab")
            for _ in range(count)
        ]

    def step_begins(self) -> None: ...

    def step_ends(self) -> bool:
        self._events[self._done].record()
        self._done += 1
        if self._calls.differs:
            self._is_void = True
        if self._done < self._length:
            return False
        self._torch.cuda.synchronize()
        first, last = self._events[self._left_out - 1], self._events[self._length - 1]
        if not self._is_void:
            each = first.elapsed_time(last) / (self._length - self._left_out)
            self.times[self._replays].append(each)
        self._made += 1
        self._done, self._is_void = 0, False
        if self._replays:
            self._end_replays()
        enough = min(map(len, self.times)) >= _WINDOWS or self._made >= _MOST_WINDOWS
        if not enough and not self._replays:
            self._begin_replays()
        else:
            self._replays = False
        return enough

    def _begin_replays(self) -> None:
        self._replays = True
        self._more = self._more or self._further_inputs()
        self._flags.apply()
        self._state.save()
        self._gradients.put_in()
        self._undo.callback(wrap(self._torch, "save", self._around_save))
        self._calls.replay(self._launch)
        self._torch.cuda.synchronize()

    def _end_replays(self) -> None:
        self._undo.close()
        self._calls.close()
        self._gradients.take_out()
        self._state.restore()
        self._flags.revert()
        self._torch.cuda.synchronize()

    def _launch(self, inputs: list[tuple[Tensor, Tensor]]) -> None:
        with self._torch.no_grad():
            for captured, present in (*inputs, *self._more):
                captured.detach().copy_(present, non_blocking=True)
        self._graph.replay()

    def _around_save(self, original: Function) -> Function:
        def save(*args: Value, **kwargs: Value) -> Value:
            if self._replays and not self._is_void:
                self._is_void = True
                self._end_replays()
            return original(*args, **kwargs)

        return save


def queued_batches(torch: Value) -> int:
    """How many batches workers of data loaders have ready at most: a faster loop first gets
    those."""
    loader = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    return max(
        (one._num_workers * one._prefetch_factor for one in objects_below(loader)), default=0
    )


PASS = ReplayedLoopPass
