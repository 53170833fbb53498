"""What passes share that capture the step inside the script's run."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable

from launchscope.model import InspectResult, Reason, StepPart
from launchscope.runner.child.capture.capture import Capture, LiveReplay
from launchscope.runner.child.capture.state import OptimizerFlags
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.events.step_pattern import BACKWARD
from launchscope.runner.child.facts.blocking import OTHER, UNKNOWN_WAIT
from launchscope.runner.child.facts.plain_values import objects_below
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.torch_types import Storage, Tensor, Torch
from launchscope.runner.child.passes import Context, Pass, Result, Skip
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.trace import TracePass


class CapturePass(Pass[Result]):
    """A warm step under the optimizer flags, a captured one, then steps that measure its replay.

    Nothing runs during a capture, so the graph is replayed once after it. The state is then what
    one eager step would have left; with stubs nearly so, because the captured step used values of
    the step before.
    """

    captures = True
    parts: tuple[StepPart, ...] = ()  # of the step, that are captured; (): all
    _flags: OptimizerFlags

    def start(self, context: Context) -> None:
        super().start(context)
        # Without the optimizer in the graph its flags do not matter.
        self._flags = OptimizerFlags(() if self.parts else context.optimizers)
        self._stubs = self.make_stubs()
        self._is_usual_step = usual_steps(context)
        self._is_usual = self._is_warm = False
        self._kept: list[Storage | Tensor] = []
        self._live: LiveReplay | None = None  # from the capture on

    def make_stubs(self) -> Stubs | None:
        """What replaces the blocking operations of the inspected steps; None if there are none. A
        part is only captured if it has none."""
        inspect = self.context.result(InspectPass)
        if inspect is None or not inspect.blockers or self.parts:
            return None
        return Stubs(self.context.hooks, self.context.on_device)

    def captures_now(self) -> bool:
        """Whether this step, which a usual one has warmed up, is the one to capture."""
        return True

    @abstractmethod
    def captured(self, capture: Capture, live: LiveReplay) -> None:
        """The graph is there and was replayed once."""

    def begin(self) -> None:
        self._leave_stubs()  # still there if the script broke a step off
        self._is_usual = self._is_usual_step()
        if self._live is not None:
            return
        self._is_usual = self.context.ranks.all(self._is_usual)
        if not self._is_usual:
            return
        if self._is_warm and self.captures_now():
            self.begin_capture()
            return
        self._flags.apply()
        if self._stubs is not None:
            self._stubs.record()

    def begin_capture(self) -> None:
        self._capture = self.context.make_capture()
        self._kept += live_memory(self.context.torch)
        self._capture.begin()
        if self._stubs is not None:
            self._stubs.play()

    def part_ended(self, part: StepPart) -> None:
        if self.parts and part == self.parts[-1]:
            self.close()

    def end(self) -> bool:
        if not self.parts:
            self.close()
        self._is_warm = self._is_warm or self._is_usual
        return False

    def close(self) -> None:
        """The captured part of the step is over."""
        self._leave_stubs()
        if self._capture is not None:
            self._end_capture(self._capture)

    def _end_capture(self, capture: Capture) -> None:
        """Nothing has run yet: do the work with one replay, before the script reads its results."""
        self._kept += live_memory(self.context.torch)  # with what the step itself fetched
        capture.end()
        if capture.nodes == 0:
            raise ReasonError("empty_graph")
        self.context.ranks.check()
        self._capture = None
        state = self.context.device_state()
        self._live = LiveReplay(capture.graph, state, self._flags, self._kept, self._stubs)
        capture.replay()
        self._flags.revert()
        self.captured(capture, self._live)

    def _leave_stubs(self) -> None:
        if self._stubs is not None:
            self._stubs.leave()

    def undo(self) -> bool:
        self.release()
        return super().undo()

    def release(self) -> None:
        """Free the graph, if there is one."""
        if self._live is not None:
            self._live.release()


def usual_steps(context: Context) -> Callable[[], bool]:
    """Says as a step begins whether it is of the kind that is captured, with inputs of the shapes
    that all inspected steps had."""
    inspect = context.result(InspectPass)
    if inspect is None or len(set(inspect.openings)) != 1:
        return context.is_main_kind
    usual = inspect.openings[0]
    return lambda: context.is_main_kind() and context.step_inputs() == usual


def live_memory(torch: Torch) -> list[Storage | Tensor]:
    """The memory of every live tensor: replays read the captured addresses.

    The script drops its batch after the step, and the allocator would reuse the memory that replays
    read. Storages are kept instead of tensors because those would keep autograd graphs alive.
    """
    kept = []
    for entry in objects_below(torch.Tensor):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            # A sparse tensor has several.
            dense = entry.layout == torch.strided
            kept.append(entry.untyped_storage() if dense else entry.detach())
    return kept


def uncapturable(context: Context) -> Skip | None:
    """Why no part of this step can be captured, whatever it contains; None if one may be."""
    trace = context.result(TracePass)
    if not context.side_stream or (trace is not None and trace.legacy_kernels):
        return Skip("skipped", Reason("legacy_stream"))
    if context.boundary.period[:1] == (BACKWARD,):
        return Skip("skipped", Reason("begins_with_backward"))
    if context.hooks.graph_replays:
        return Skip("skipped", Reason("already_graphed"))
    return None


def without_stubs(context: Context, inspect: InspectResult) -> Skip | None:
    """Why no recorded results can replace the blocking operations; None if they can."""
    if inspect.blockers and not context.own_process:
        return Skip("blocked", Reason("callable_with_blockers"))
    for blocker in inspect.blockers:
        if blocker.op == UNKNOWN_WAIT or blocker.category == OTHER:
            return Skip("blocked", Reason("no_stub", {"op": blocker.op}))
    if any(blocker.compiled for blocker in inspect.blockers):
        return Skip("blocked", Reason("compiled_with_blockers"))
    return None


def ops_change(inspect: InspectResult) -> Skip | None:
    """Why a graph of one step does not fit the others; None if all steps run the same ops."""
    variants = len(set(inspect.signatures))
    details = {"variants": variants, "steps": inspect.steps}
    return Skip("skipped", Reason("ops_change", details)) if variants > 1 else None
