"""Checks that a replay computes what eager does, on the script's own batches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from launchscope.model import Cause, Reason, VerifyResult
from launchscope.runner.child.capture.capture import Capture
from launchscope.runner.child.capture.causes import (
    Hyperparameters,
    causes_between,
    hyperparameters,
    runs_the_same,
)
from launchscope.runner.child.capture.relative_error import of_outputs, of_update
from launchscope.runner.child.capture.state import DeviceState, before_capture, copy_of
from launchscope.runner.child.capture.step_trace import StepRecorder, StepTrace
from launchscope.runner.child.code_owner import is_ours
from launchscope.runner.child.ops.step_ops import alive
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.inspect import known_storages, usual_steps
from launchscope.runner.child.reasons import is_out_of_memory, reason_of
from launchscope.runner.child.source_lines import raising_frame
from launchscope.runner.child.torch_types import Graph, StorageRef, Tensor

if TYPE_CHECKING:
    from launchscope.graph_step import SavedState

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

    def skipped(self, context: Context, skip: Skip) -> VerifyResult:
        return VerifyResult("skipped", skip.reason)

    def skip(self, context: Context) -> Skip | None:
        if context.replay is not None and context.replay.stubs is not None:
            return Skip("skipped", Reason("what_if_replay"))
        if context.boundary.compiled:
            return Skip("skipped", Reason("compiled_step"))
        return None

    def start(self, context: Context) -> None:
        super().start(context)
        assert context.replay is not None
        context.replay.release()  # its memory is needed for a graph whose inputs are known
        self._is_usual_step = usual_steps(context)
        self._flags = context.replay.flags
        self._flags.apply()
        self.wanted -= 1  # one is captured
        self._capture: Capture | None = None
        self._before_capture: SavedState | None = None  # of a caller's process, to put back
        self._reference: Reference | None = None
        self._current: StepRecorder | None = None
        self._recording = contextlib.ExitStack()
        self._before: DeviceState | None = None
        self._last: StepTrace | None = None
        self._hyper: Hyperparameters = {}
        self._owes_answer = False  # the other ranks ask next, at the end of the step
        self._checked = 0
        self._differences: list[float] = []
        self._floors: list[float] = []
        self._causes: list[Cause] = []

    def make_capture(self) -> Capture:
        return Capture(self.context.torch)

    def begin(self) -> None:
        self._recording.close()
        context, is_usual = self.context, False
        with context.ranks.together():
            is_usual = self._is_usual_step()
            if is_usual and self._reference is not None:
                self._before = self._state(self._reference)
                self._before.save()
        if not context.ranks.all(is_usual):
            return
        self._owes_answer = True
        self._hyper = hyperparameters(context.optimizers)
        torch = context.torch
        capturing = None
        if self._reference is None:
            capturing = context.is_capturing if context.on_gpu else None
            if not context.own_process:
                self._before_capture = before_capture(torch, context.modules, context.optimizers)
            self._capture = self.make_capture()
            self._capture.begin()
        self._current = StepRecorder(
            torch,
            context.hooks,
            context.on_device,
            expected=None if self._reference is None else self._reference.trace,
            before=self._last,
            state=known_storages(context),
            capturing=capturing,
        )
        self._recording.enter_context(self._current.mode())

    def end(self) -> bool:
        self._recording.close()
        current, self._current = self._current, None
        if current is None:
            return False
        self._last = current.trace
        if self._reference is None:
            self._end_capture(current.trace)
            return False
        reference, before = self._reference, self._before
        assert before is not None
        with self._answering():
            current.trace.settle()
            causes = causes_between(reference.trace, current.trace, reference.hyper, self._hyper)
            comparable = runs_the_same(reference.trace, current.trace)  # else its inputs differ
        self._checked += 1
        compared = self.context.ranks.all(comparable)
        if comparable and not (compared and self._compare(reference, before, current.trace)):
            causes = [cause for cause in causes if cause.kind != "cross_step_state"]
        self._causes += [cause for cause in causes if cause not in self._causes]
        self._before = None
        return self._checked >= self.wanted

    def _end_capture(self, captured: StepTrace) -> None:
        """Nothing ran during the capture: do its work with one replay."""
        with self._answering():
            assert self._capture is not None
            captured.settle()
            outputs = self._alive(captured)
            self._capture.end()
        graph, self._capture = self._capture.graph, None
        self._reference = Reference(graph, captured, self._hyper, outputs)
        graph.replay()
        self.context.synchronize()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """The first question to the ranks at the end of a step."""
        with self.context.ranks.together():
            self._owes_answer = False
            yield

    def _state(
        self, reference: Reference, without: AbstractSet[StorageRef] = frozenset()
    ) -> DeviceState:
        context = self.context
        written = dict.fromkeys(context.written_storages) | reference.trace.written
        further = {storage: written[storage] for storage in written if storage not in without}
        device = "cuda" if context.on_gpu else "cpu"
        return DeviceState(context.torch, context.modules, context.optimizers, further, device)

    def _compare(self, reference: Reference, before: DeviceState, eager: StepTrace) -> bool:
        """Repeat the eager step by a replay, compare, and leave what eager left.

        Returns whether anything comes of what the step reads from the step before.
        """
        ranks = self.context.ranks
        views = list(zip(reference.trace.views, eager.views, strict=False))
        stale = [(captured, view.origin) for captured, view in views if view.origin is not None]
        # Gradients that the captured step added to, for example, and that the script then dropped.
        dropped = {captured.place.storage for captured, origin in stale if origin == "state"}
        dropped -= known_storages(self.context)
        after, again = self._state(reference, dropped), self._state(reference)
        places = [(place.tensor, view.value) for place, view in views if view.value is not None]
        with ranks.together():
            self.context.synchronize()
            after.save()
            poison = [
                (view.tensor, self.context.torch.full_like(view.tensor, math.nan))
                for view, _ in stale
                if view.place.storage in dropped and view.tensor.is_floating_point()
            ]
            kept = [place for place, _ in (*places, *poison)]
            held = [(place, copy_of(self.context.torch, place)) for place in kept]
        try:
            self._replay(reference, before, places)
            difference = floor = None
            with ranks.together():
                difference = self._difference(before, after, reference, eager)
            measures_floor = bool(difference) and not before.on_host and not after.on_host
            if ranks.any(measures_floor):
                with ranks.together():
                    if measures_floor:
                        again.save()
                self._replay(reference, before, places)
                with ranks.together():
                    if measures_floor:
                        floor = of_update(before.saved, after.saved, again.saved)
                        self._floors.append(floor or 0.0)
            for _ in range(_MORE_REPLAYS):
                doubted = bool(floor) and difference is not None and self._is_different(difference)
                if not ranks.any(doubted):
                    break
                self._replay(reference, before, places)
                with ranks.together():
                    if doubted:
                        found = self._difference(before, after, reference, eager)
                        difference = min(difference or 0.0, found or 0.0)
            if difference is not None:
                self._differences.append(difference)
            poisons = difference is not None and 0 < len(stale) <= len(poison)
            if not ranks.any(poisons):
                return True
            self._replay(reference, before, [*places, *(poison if poisons else ())])
            if not poisons:
                return True
            reached = of_update(before.saved, after.saved), self._of_outputs(reference, eager)
            return self._is_different(max(part or 0.0 for part in reached))
        finally:
            self._put(held)
            after.restore()
            self.context.synchronize()

    def _difference(
        self, before: DeviceState, after: DeviceState, reference: Reference, eager: StepTrace
    ) -> float | None:
        """Of what is there now from what eager left; None if nothing can be compared."""
        parts = [of_update(before.saved, after.saved)]
        if parts == [None] or self.context.boundary.scope == "forward":
            parts.append(self._of_outputs(reference, eager))
        return max((part for part in parts if part is not None), default=None)

    def _of_outputs(self, reference: Reference, eager: StepTrace) -> float | None:
        made = self._alive(eager)
        return of_outputs(
            [
                (replayed, made[order])
                for order, replayed in reference.outputs.items()
                if order in made and len(made[order]) == len(replayed)
            ]
        )

    def _is_different(self, difference: float) -> bool:
        return difference > max(_TOLERANCE, _TIMES_FLOOR * max(self._floors, default=0.0))

    def _replay(
        self, reference: Reference, before: DeviceState, inputs: list[tuple[Tensor, Tensor]]
    ) -> None:
        before.restore()
        self._put(inputs)
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
                if not storage.nbytes() or storage.nbytes() % dtype.itemsize:
                    continue
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
        if self._owes_answer:
            self._owes_answer = False
            self.context.ranks.refuse()
        with contextlib.suppress(Exception):
            self._recording.close()
        return self._result(reason_of(error))

    def undo(self) -> bool:
        usable = True
        if self._capture is not None and self._before_capture is not None:
            usable = self._capture.repair(self._before_capture)
        if usable:
            self._flags.revert()
        return usable

    def finish(self, complete: bool) -> VerifyResult:
        self._recording.close()
        self._flags.revert()
        if not self._checked:
            return self._result(Reason("script_ended_before_check"))
        return self._result(Reason("nothing_to_compare"))

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
