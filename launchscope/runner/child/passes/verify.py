"""Checks that a replay computes what eager does, on the script's own batches."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from launchscope.model import Cause, Reason, VerifyResult
from launchscope.runner.child.capture.causes import (
    Hyperparameters,
    causes_between,
    hyperparameters,
    runs_the_same,
)
from launchscope.runner.child.capture.relative_error import of_outputs, of_update
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags, copy_of
from launchscope.runner.child.capture.step_trace import StepRecorder, StepTrace
from launchscope.runner.child.facts.reasons import is_out_of_memory, reason_of
from launchscope.runner.child.facts.source_lines import is_ours, raising_frame
from launchscope.runner.child.facts.step_ops import alive
from launchscope.runner.child.facts.torch_types import Graph, Tensor
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.capture_pass import usual_steps
from launchscope.runner.child.passes.inspect import known_storages

# Updates are different if their relative difference is larger than this, and larger than this many
# times that of two replays of the same batch. Replays of the same kernels were bit-identical or
# at 1e-9 (H200).
_TOLERANCE, _TIMES_FLOOR = 1e-3, 10.0
# Where two replays differ, their kernels add up in any order, and an activation beside the kink of
# a ReLU may fall on either side: what eager had is among so many more, a fault is in all of them.
_MORE_REPLAYS = 4
# Fewer steps may agree by chance; they only count where the person asked for fewer.
_LEAST = 3


@dataclass
class Reference:
    """The captured step that eager is compared with."""

    graph: Graph
    trace: StepTrace
    hyper: Hyperparameters
    outputs: dict[int, Tensor]  # by order of making: those alive at its end, as flat tensors


@dataclass
class EagerStep:
    """What replays repeat: the state before and after it, and what they read."""

    trace: StepTrace
    before: DeviceState
    after: DeviceState
    inputs: list[tuple[Tensor, Tensor]]  # where the captured step reads, and what to put there


class VerifyPass(Pass[VerifyResult]):
    """A second capture that records its inputs, then eager steps to compare with.

    A replay repeats each eager step at its end: the state before it is put back, its inputs are
    copied to where the captured step reads them, and after the comparison the state is again
    what eager left. That takes two copies of the state, whatever the number of steps.

    A replay of several ranks waits for all of them in its collectives: each compares its own, and
    all replay as often, also where one has nothing to compare.
    """

    name = "verify"
    captures = True
    with_ranks = True
    _flags: OptimizerFlags

    def skipped(self, context: Context, skip: Skip) -> VerifyResult:
        return VerifyResult("skipped", skip.reason)

    def skip(self, context: Context) -> Skip | None:
        if context.replay is not None and context.replay.stubs is not None:
            return Skip("skipped", Reason("what_if_replay"))
        return Skip("skipped", Reason("compiled_step")) if context.boundary.compiled else None

    def start(self, context: Context) -> None:
        super().start(context)
        assert context.replay is not None
        context.release_replay()  # its memory is needed for a graph whose inputs are known
        self._is_usual_step = usual_steps(context)
        self._flags = context.replay.flags
        self._flags.apply()
        self.wanted -= 1  # one is captured
        self._reference: Reference | None = None
        self._recording = contextlib.ExitStack()
        self._current: StepRecorder | None = None  # of the step that runs
        self._before: DeviceState | None = None  # and this, and the next
        self._hyper: Hyperparameters = {}
        self._last: StepTrace | None = None
        self._checked = 0
        self._differences: list[float] = []
        self._floors: list[float] = []
        self._causes: list[Cause] = []

    def begin(self) -> None:
        self._recording.close()
        context, reference = self.context, self._reference
        is_usual = self._is_usual_step()
        if is_usual and reference is not None:
            self._before = context.device_state(reference.trace.written)
            self._before.save()
        if not context.ranks.all(is_usual):
            return
        self._hyper = hyperparameters(context.optimizers)
        if reference is None:
            self._capture = context.make_capture()
            self._capture.begin()
        self._current = StepRecorder(
            context.torch,
            context.hooks,
            context.on_device,
            expected=None if reference is None else reference.trace,
            before=self._last,
            state=known_storages(context),
            capturing=context.is_capturing if reference is None and context.on_gpu else None,
        )
        self._recording.enter_context(self._current.mode())

    def end(self) -> bool:
        self._recording.close()
        current, self._current = self._current, None
        if current is None:
            return False
        self._last = eager = current.trace
        eager.settle()
        reference = self._reference
        if reference is None:
            self._end_capture(eager)
            return False
        self._checked += 1
        causes = causes_between(reference.trace, eager, reference.hyper, self._hyper)
        if self.context.ranks.all(runs_the_same(reference.trace, eager)):  # else its inputs differ
            difference = self._compare(reference, eager)
            if difference is not None:
                self._differences.append(difference)
                if not self._is_different(difference):
                    # Nothing comes of gradients that the step reads from the step before.
                    causes = [cause for cause in causes if cause.origin != "state"]
        self._causes += [cause for cause in causes if cause not in self._causes]
        return self._checked >= self.wanted

    def _end_capture(self, captured: StepTrace) -> None:
        """Nothing ran during the capture: do its work with one replay."""
        assert self._capture is not None
        outputs = self._alive(captured)
        self._capture.end()
        self.context.ranks.check()
        graph, self._capture = self._capture.graph, None
        self._reference = Reference(graph, captured, self._hyper, outputs)
        graph.replay()
        self.context.synchronize()

    def _compare(self, reference: Reference, eager: StepTrace) -> float | None:
        """Repeat the eager step by replays and leave what eager left; how far they differ from it,
        None if nothing can be compared."""
        context, views = self.context, list(zip(reference.trace.views, eager.views, strict=False))
        # Gradients that the captured step added to, for example, and that the script then dropped.
        dropped = {captured.place.storage for captured, view in views if view.origin == "state"}
        dropped -= known_storages(context)
        after = context.device_state(reference.trace.written, without=dropped)
        context.synchronize()
        after.save()
        inputs, held = [], []
        for captured, view in views:
            if view.value is not None or view.origin is not None:
                content = copy_of(context.torch, captured.tensor)
                held.append((captured.tensor, content))
                inputs.append((captured.tensor, content if view.value is None else view.value))
        context.ranks.check()
        assert self._before is not None
        try:
            return self._replays(reference, EagerStep(eager, self._before, after, inputs))
        finally:
            self._put(held)
            after.restore()
            context.synchronize()

    def _replays(self, reference: Reference, step: EagerStep) -> float | None:
        """As many on all ranks as one of them needs."""
        ranks, before, after = self.context.ranks, step.before, step.after
        self._replay(reference, step)
        difference = self._difference(reference, step)
        if not ranks.any(bool(difference)):
            return difference
        again = self.context.device_state(reference.trace.written)
        again.save()
        ranks.check()
        self._replay(reference, step)
        floor = of_update(before.saved, after.saved, again.saved) or 0.0
        self._floors.append(floor)
        for _ in range(_MORE_REPLAYS):
            if not ranks.any(bool(floor) and self._is_different(difference)):
                break
            self._replay(reference, step)
            difference = min(difference or 0.0, self._difference(reference, step) or 0.0)
        return difference

    def _difference(self, reference: Reference, step: EagerStep) -> float | None:
        """How far the present state is from the eager step's; None if nothing can be compared."""
        difference = of_update(step.before.saved, step.after.saved)
        if difference is not None and self.context.boundary.scope != "forward":
            return difference
        made = self._alive(step.trace)
        outputs = [
            (replayed, made[order])
            for order, replayed in reference.outputs.items()
            if order in made and len(made[order]) == len(replayed)
        ]
        parts = difference, of_outputs(outputs)
        return max((part for part in parts if part is not None), default=None)

    def _is_different(self, difference: float | None) -> bool:
        limit = max(_TOLERANCE, _TIMES_FLOOR * max(self._floors, default=0.0))
        return difference is not None and difference > limit

    def _replay(self, reference: Reference, step: EagerStep) -> None:
        step.before.restore()
        self._put(step.inputs)
        reference.graph.replay()
        self.context.synchronize()

    def _put(self, places: list[tuple[Tensor, Tensor]]) -> None:
        torch = self.context.torch
        with torch.inference_mode(False), torch.no_grad():
            for place, value in places:
                _distinct(place, place).copy_(_distinct(value, place))

    def _alive(self, step: StepTrace) -> dict[int, Tensor]:
        """What the step made and the script still holds: its outputs, as flat tensors."""
        torch = self.context.torch
        found = {}
        with torch.inference_mode(False), torch.no_grad():
            for order, (reference, dtype) in enumerate(step.made.items()):
                storage = alive(reference)
                if storage is None or not self.context.on_device(storage):
                    continue
                if storage.nbytes() and not storage.nbytes() % dtype.itemsize:
                    flat = torch.empty(0, dtype=dtype, device=storage.device)
                    found[order] = flat.set_(storage)
        return found

    def failed_inside_step(self, error: BaseException) -> VerifyResult | None:
        """Ours during the capture, where the copies do not fit, and where our code raised it."""
        frame = raising_frame(error)
        raised_by_us = frame is not None and is_ours(frame.f_code.co_filename)
        mine = is_out_of_memory(error) or self._capture is not None or raised_by_us
        return self.failed(error) if mine else None

    def failed(self, error: BaseException) -> VerifyResult:
        with contextlib.suppress(Exception):
            self._recording.close()
        return self._result(reason_of(error))

    def finish(self, complete: bool) -> VerifyResult:
        self._recording.close()
        self._flags.revert()
        ended_before = Reason("script_ended_before_check")
        return self._result(Reason("nothing_to_compare") if self._checked else ended_before)

    def _result(self, otherwise: Reason) -> VerifyResult:
        """What was found; `otherwise` is the reason if nothing was compared."""
        reason: Reason | None = None
        status: Literal["verified", "different", "skipped"] = "verified"
        if self._causes:
            status = "different"
        elif not self._differences:
            status, reason = "skipped", otherwise
        elif self._is_different(max(self._differences)):
            status = "different"
        elif len(self._differences) < min(_LEAST, self.wanted):
            counts = {"compared": len(self._differences), "wanted": self.wanted}
            status, reason = "skipped", Reason("few_compared", counts)
        return VerifyResult(
            status, reason, tuple(self._differences), tuple(self._floors), tuple(self._causes)
        )


def _distinct(tensor: Tensor, like: Tensor) -> Tensor:
    """Only one of each element that `like` shows many times, as an expanded tensor does."""
    for dimension, stride in enumerate(like.stride()):
        if stride == 0 and like.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


PASS = VerifyPass
