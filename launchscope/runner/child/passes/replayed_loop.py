"""Runs the script's own loop in windows that alternate between eager steps and replays."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING

from launchscope.model import LoopResult, Reason
from launchscope.model.medians import median_interval
from launchscope.runner.child.capture.capture import Capture, LiveReplay
from launchscope.runner.child.capture.cuda_events import timing_events
from launchscope.runner.child.capture.replayed_calls import ReplayedCalls
from launchscope.runner.child.facts.blocking import runs_no_kernel
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import (
    objects_below,
    parameters_with_state,
    tensors_in,
)
from launchscope.runner.child.facts.reasons import reason_of
from launchscope.runner.child.facts.torch_modes import dispatch_mode
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Op, Tensor, Value
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.capture_pass import CapturePass
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import ReplayPass

if TYPE_CHECKING:
    from launchscope.graphed.capture import SavedState

_WINDOWS, _ITERATIONS = 4, 8  # of each kind at least, and in one of them
# A window lasts for so long, within bounds of the number of its iterations; a slow step has fewer.
_WINDOW_S, _MOST, _FEWEST = 0.15, 96, 2
# Steps that take longer fill no windows while somebody waits.
_SLOW_S = 3.0
# While it is open whether the gain reaches the threshold, there are further windows: of both kinds
# so many at most, and for so long.
_MOST_WINDOWS, _LOOP_S = 60, 15.0


class ReplayedLoopPass(CapturePass[LoopResult]):
    """After a capture that writes down the calls of the step, windows. In a replayed window a step
    is one graph launch, and the script's other code runs as ever; the state is put back after it.
    The process ends after the pass.
    """

    name = "replayed_loop"

    def skip(self, context: Context) -> Skip | None:
        replay = context.result(ReplayPass)
        if not context.own_process:
            return Skip("skipped", Reason("callable_without_loop"))
        if context.step_s > _SLOW_S:
            return Skip("skipped", Reason("slow_steps"))
        if replay is None or replay.status not in ("measured", "what_if"):
            return Skip("skipped", Reason("not_captured"))
        return None

    def skipped(self, context: Context, skip: Skip) -> LoopResult:
        return LoopResult("skipped", skip.reason)

    def start(self, context: Context) -> None:
        context.release_replay()
        super().start(context)
        self._calls = ReplayedCalls(context.hooks, context.modules, context.optimizers)
        self._calls.record()
        self._windows: Windows | None = None

    def begin(self) -> None:
        self._calls.step_begins()
        if self._windows is None:
            super().begin()
        else:
            self._windows.step_begins()

    def end(self) -> bool:
        self._calls.step_ends()
        if self._windows is None:
            return super().end()
        return self._windows.step_ends()

    def captured(self, capture: Capture, live: LiveReplay) -> None:
        self._calls.close()
        self._windows = Windows(self.context, live, self._calls)

    def failed_inside_step(self, error: BaseException) -> LoopResult | None:
        return self.failed(error)

    def failed(self, error: BaseException) -> LoopResult:
        self._leave()
        return LoopResult("failed", reason_of(error))

    def _leave(self) -> None:
        self._calls.close()
        self._leave_stubs()

    def finish(self, complete: bool) -> LoopResult:
        self._leave()
        windows = self._windows
        if windows is None:
            return LoopResult("failed", Reason("script_ended"))
        windows.end_replays()
        eager, replayed = map(tuple, windows.times)
        if min(len(eager), len(replayed)) < 2:
            reason = windows.reason or Reason("script_ended")
            return LoopResult("failed", reason, taken_back=windows.taken_back)
        others = tuple(windows.step_ms), windows.own_ops, windows.taken_back
        return LoopResult("measured", None, eager, replayed, *others)


class Windows:
    """Times windows of eager iterations and of replayed ones in turn."""

    def __init__(self, context: Context, live: LiveReplay, calls: ReplayedCalls):
        self._context, self._torch = context, context.torch
        self._live, self._calls = live, calls
        self.times: tuple[list[float], list[float]] = [], []  # eager, replayed
        self.own_ops: int | None = None
        self.taken_back = 0  # replayed steps
        self.reason: Reason | None = None  # why a window could not be replayed
        self._gradients = self._present_gradients()  # those of the captured step
        self._left_out = max(1, queued_batches(self._torch))
        self._length = self._left_out + self._timed(max(context.step_s, 1e-6))
        self._events = timing_events(self._torch, self._length)
        begins = range(self._left_out, self._length, 3)  # an event costs a short step about 1 %
        self._begins = dict(zip(begins, timing_events(self._torch, len(begins))))
        self.step_ms: list[float] = []  # of the eager windows
        self._began = perf_counter()
        self._done = 0  # steps of this window
        self._made = 0  # windows
        self._replays = False  # this window is one of replays
        self._is_replaying = False  # a step is one now: a replayed window may end early
        self._is_launching = False
        self._undo, self._counted = ExitStack(), ExitStack()
        self._more: list[tuple[Tensor, Tensor]] = []

    def _present_gradients(self) -> SavedState:
        """The script may read gradients in a replayed step."""
        from launchscope.graphed.capture import (
            SavedState,  # imports torch, as the script did by now
        )

        found = [p for o in self._context.optimizers for _, p, _ in parameters_with_state(o)]
        return SavedState(found, generators=None)

    def _timed(self, step_s: float) -> int:
        """The iterations of a window that are timed, as many at least as were left out before."""
        usual = min(max(round(_WINDOW_S / step_s), _ITERATIONS), _MOST)
        most = round(_LOOP_S / (2 * _WINDOWS) / step_s)
        return max(min(usual, most), self._left_out, _FEWEST)

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

    def step_begins(self) -> None:
        begin = self._begins.get(self._done)
        if begin is not None and not self._replays:
            begin.record()
        if self._is_replaying and self.own_ops is None:
            self.own_ops = 0
            self._counted.enter_context(dispatch_mode(self._on_own_op))

    def _on_own_op(self, op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        """Only what runs on the GPU is in the graph as well."""
        result = run(*args, **kwargs)
        if not self._is_launching and not runs_no_kernel(op):
            tensors = tensors_in(self._torch, (args, kwargs, result))
            self.own_ops = (self.own_ops or 0) + any(one.is_cuda for one in tensors)
        return result

    def step_ends(self) -> bool:
        self._counted.close()
        self._events[self._done].record()
        self._done += 1
        if self._done < self._length:
            return False
        self._torch.cuda.synchronize()
        first, last = self._events[self._left_out - 1], self._events[self._length - 1]
        if not self._replays or self._is_replayed():
            each = first.elapsed_time(last) / (self._length - self._left_out)
            self.times[self._replays].append(each)
        if not self._replays:
            begun = self._begins.items()
            self.step_ms.append(fmean(one.elapsed_time(self._events[at]) for at, one in begun))
        self._done = 0
        self._made += 1
        self.end_replays()
        enough = self._is_enough()
        self._replays = not enough and not self._replays
        if self._replays:
            self._begin_replays()
        return enough

    def _is_enough(self) -> bool:
        late = perf_counter() - self._began > _LOOP_S or self._made >= _MOST_WINDOWS
        if min(map(len, self.times)) < _WINDOWS:
            return late
        shares = [100 * (1 - replayed / eager) for eager, replayed in zip(*self.times)]
        low, high = median_interval(shares)
        return late or not low < self._context.schedule.threshold <= high

    def _is_replayed(self) -> bool:
        """Whether the steps of this window were replays; steps of other kinds stay eager."""
        calls = self._calls
        if not self._is_replaying or (calls.different and not self._context.has_kinds):
            self.reason = Reason("loop_differs")
        elif not calls.launches:
            self.reason = Reason("no_call_to_replace")
        else:
            return True
        return False

    def _begin_replays(self) -> None:
        live, undo = self._live, self._undo.callback
        self._is_replaying = True
        self._more = self._more or self._further_inputs()
        undo(self._torch.cuda.synchronize)
        live.flags.apply()
        undo(live.flags.revert)
        live.state.save()
        undo(live.state.restore)
        undo(self._present_gradients().restore)
        self._gradients.restore()
        undo(wrap(self._torch, "save", self._around_save))
        undo(self._calls.close)
        self._calls.replay(self._launch)
        self._torch.cuda.synchronize()

    def end_replays(self) -> None:
        """The script goes on, or has ended, with the state of its eager steps."""
        if self._is_replaying:
            self._is_replaying = False
            self.taken_back += self._calls.launches
            self._counted.close()
            self._undo.close()

    def _launch(self, inputs: list[tuple[Tensor, Tensor]]) -> None:
        self._is_launching = True
        with self._torch.no_grad():
            for captured, present in (*inputs, *self._more):
                captured.detach().copy_(present, non_blocking=True)
        self._live.graph.replay()
        self._is_launching = False

    def _around_save(self, original: Function) -> Function:
        """What a script saves is its own state; the rest of the window is eager."""

        def save(*args: Value, **kwargs: Value) -> Value:
            self.end_replays()
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
