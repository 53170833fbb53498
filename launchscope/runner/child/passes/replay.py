"""Captures the step inside the script's run and measures its replay."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from dataclasses import replace
from typing import Literal, TypeVar

from launchscope.model import (
    BlockerRecord,
    InspectResult,
    LibraryLine,
    Reason,
    ReplayResult,
    SourceLine,
    StepPart,
)
from launchscope.runner.child.capture.capture import Bursts, Capture, LiveReplay
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.capture.stubs import StubMismatchError, Stubs
from launchscope.runner.child.events.step_pattern import BACKWARD
from launchscope.runner.child.facts.blocking import OTHER, UNKNOWN_OP, UNKNOWN_WAIT
from launchscope.runner.child.facts.clock import clock
from launchscope.runner.child.facts.plain_values import objects_below
from launchscope.runner.child.facts.reasons import ReasonError, is_out_of_memory, reason_of
from launchscope.runner.child.facts.source_lines import code_place, raising_frame, user_line
from launchscope.runner.child.facts.torch_types import Storage, Tensor, Torch
from launchscope.runner.child.passes import Context, Pass, Skip
from launchscope.runner.child.passes.inspect import InspectPass, records_of, usual_steps
from launchscope.runner.child.passes.trace import TracePass

# cudaErrorStreamCaptureInvalidated: an earlier call has broken the capture, without an error.
_INVALIDATED = 901
Scope = Literal["full_step", "forward_backward", "forward", "region"]
AnyStubs = TypeVar("AnyStubs", bound=Stubs)


class CapturePass(Pass[ReplayResult]):
    """A warm step under the optimizer flags, a capture, then bursts: eager, replay, eager, ...

    Nothing runs during the capture, so the graph is replayed once after it. After each burst
    of replays the saved state is put back. Both times the state is what one eager step would
    have left; with stubs nearly so, because the captured step used values of the step before.
    """

    captures = True
    captured: Scope | None = None  # None: the whole step, whatever it is
    parts: tuple[StepPart, ...] = ()  # of the step, that are captured; (): all
    _flags: OptimizerFlags

    def make_stubs(self) -> Stubs | None:
        """What replaces blocking operations; None where there are none."""
        return None

    def start(self, context: Context) -> None:
        super().start(context)
        # Without the optimizer in the graph its flags do not matter.
        self._flags = OptimizerFlags(context.torch, () if self.parts else context.optimizers)
        self._stubs = self.make_stubs()
        self._is_usual_step = usual_steps(context)
        self._is_usual = self._is_warm = False
        self._bursts: Bursts | None = None  # this and the next: from the capture on
        self._result: ReplayResult | None = None
        self._kept: list[Storage | Tensor] = []
        self._where: SourceLine | None = None
        self._part: StepPart = "forward"  # that the step is in

    def captures_now(self) -> bool:
        """Whether this step, which a usual one has warmed up, is the one to capture."""
        return True

    def begin(self) -> None:
        if self._stubs is not None:  # still there if the script broke a step off
            self._stubs.leave()
        self._part = "forward"
        self._is_usual = self._is_usual_step()
        if self._bursts is None:
            self._is_usual = self.context.ranks.all(self._is_usual)
        if not self._is_usual:
            return
        if self._bursts is not None:
            self._bursts.open()
        elif self._is_warm and self.captures_now():
            self._capture = self.context.make_capture()
            self._where = user_line(sys._getframe(1))
            self._kept += live_memory(self.context.torch)
            self._capture.begin()
            if self._stubs is not None:
                self._stubs.play()
        else:
            self._flags.apply()
            if self._stubs is not None:
                self._stubs.record()

    def part_ended(self, part: StepPart) -> None:
        self._part = "backward" if part == "forward" else "optimizer"
        if self.parts and part == self.parts[-1]:
            self._close()

    def end(self) -> bool:
        if not self.parts:
            self._close()
        if self._bursts is None:
            self._is_warm = self._is_warm or self._is_usual
            return False
        self._bursts.after_step()
        return self._bursts.done

    def _close(self) -> None:
        """The captured part of the step is over."""
        if self._stubs is not None:
            self._stubs.leave()
        if self._capture is not None:
            self._end_capture(self._capture)
        elif self._bursts is not None:
            self._bursts.close()

    def _end_capture(self, capture: Capture) -> None:
        """Nothing has run yet: do the work with one replay, before the script reads its results."""
        context, torch = self.context, self.context.torch
        self._kept += live_memory(torch)  # with what the step itself fetched
        capture.end()
        if capture.nodes == 0:
            raise ReasonError("empty_graph")
        context.ranks.check()
        self._capture = None
        further = dict.fromkeys(context.written_storages)
        state = DeviceState(torch, context.modules, context.optimizers, further)
        live = LiveReplay(capture.graph, state, self._flags, self._kept, self._stubs)
        began = clock.perf_counter()
        capture.graph.replay()
        torch.cuda.synchronize()
        first_replay_ms = (clock.perf_counter() - began) * 1e3
        used = capture.free_before - torch.cuda.mem_get_info()[0]
        self._flags.revert()
        self._bursts = Bursts(torch, live, context.schedule.replay, context.ranks)
        inspect = context.result(InspectPass)
        self._result = ReplayResult(
            status="measured",
            scope=self.captured or context.boundary.scope,
            changes=self._flags.changes,
            capture_ms=capture.capture_ms,
            instantiate_ms=capture.instantiate_ms,
            first_replay_ms=first_replay_ms,
            graph_nodes=capture.nodes,
            graph_memory_mib=max(0.0, used / 2**20),
            input_bytes=None if inspect is None else inspect.input_bytes,
            input_tensors=None if inspect is None else inspect.input_tensors,
            kind=context.step_kind(),
        )

    def failed_inside_step(self, error: BaseException) -> ReplayResult | None:
        """An error during the capture is a result: this step cannot be captured.

        So is running out of memory later: the graph needs its memory beside that of eager.
        """
        if self._capture is not None:
            return replace(self.failed(error), refused=self._refused(error))
        starved = self._bursts is not None and is_out_of_memory(error)
        return self.failed(error) if starved else None

    def _refused(self, error: BaseException) -> BlockerRecord | None:
        """The operation of the script at which the capture ended; None where it is no cause."""
        if reason_of(error).code not in ("error", "cuda_error"):
            return None
        if getattr(error, "error_code", None) == _INVALIDATED:
            return None
        place = code_place(raising_frame(error), self.context.hooks.backward_where)
        inspect = self.context.result(InspectPass)
        ops = () if inspect is None else inspect.ops
        at_line = {op.op for op in ops if op.where == place.where}
        op = at_line.pop() if len(at_line) == 1 else UNKNOWN_OP
        library = None if place.library is None else LibraryLine(place.library)
        record = BlockerRecord(op, OTHER, place.where, 1, part=self._part, library=library)
        return records_of(Counter({record: 1}))[0]

    def failed(self, error: BaseException) -> ReplayResult:
        """A failed replay with the reason; the results of the eager passes are on disk already."""
        return ReplayResult(
            status="blocked" if isinstance(error, StubMismatchError) else "failed",
            reason=reason_of(error),
            where=user_line(raising_frame(error)) or self._where,
            scope=self.captured or self.context.boundary.scope,
            changes=self._flags.changes,
        )

    def undo(self) -> bool:
        self.release()
        return super().undo()

    def release(self) -> None:
        """Free the graph, if there is one."""
        if self._bursts is not None:
            self._bursts.live.release()

    def finish(self, complete: bool) -> ReplayResult | None:
        stubs, bursts = self._stubs, self._bursts
        if stubs is not None:
            stubs.leave()
        if self._result is None or bursts is None:
            self._flags.revert()
            return None
        result = replace(
            self._result,
            eager_bursts=tuple(bursts.eager),
            replay_bursts=tuple(bursts.replay),
            host_replay_us=bursts.host_us,
        )
        if not bursts.replay:
            return replace(result, status="failed", reason=Reason("script_ended"))
        if stubs is None:
            return result
        if not stubs.used:
            return replace(result, reason=Reason("blockers_skipped"))
        reason = Reason("blockers_stubbed", {"count": stubs.used})
        return replace(result, status="what_if", reason=reason, left_out_ms=stubs.left_out_ms)


class ReplayPass(CapturePass):
    """Known blockers are never captured: the replay of a step that has some is a what-if."""

    name = "replay"
    with_ranks = True

    def skip(self, context: Context) -> Skip | None:
        inspect = context.result(InspectPass)
        skip = uncapturable(context)
        if skip is not None or inspect is None:
            return skip
        changing = ops_change(inspect)
        if not inspect.blockers:
            return changing
        skip = without_stubs(context, inspect)
        if skip is None and changing is not None:
            return Skip("blocked", Reason("ops_change_beside_blockers", changing.reason.details))
        return skip

    def make_stubs(self) -> Stubs | None:
        return stubs_of(self.context, Stubs)

    def skipped(self, context: Context, skip: Skip) -> ReplayResult:
        inspect = context.result(InspectPass) if skip.status == "blocked" else None
        where = inspect.blockers[0].where if inspect and inspect.blockers else None
        return ReplayResult(skip.status, skip.reason, where)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        self.context.replay = None if self._bursts is None else self._bursts.live
        return result


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
    if any(blocker.op == UNKNOWN_WAIT for blocker in inspect.blockers):
        return Skip("blocked", Reason("no_stub", {"op": UNKNOWN_WAIT}))
    if any(blocker.compiled for blocker in inspect.blockers):
        return Skip("blocked", Reason("compiled_with_blockers"))
    return None


def stubs_of(context: Context, kind: type[AnyStubs]) -> AnyStubs | None:
    """What replaces the blocking operations of the inspected steps; None if there are none."""
    inspect = context.result(InspectPass)
    if inspect is None or not inspect.blockers:
        return None
    waiting = [(b.op, b.where) for b in inspect.blockers if b.category == OTHER]
    return kind(context.hooks, context.on_device, frozenset(waiting))


def ops_change(inspect: InspectResult) -> Skip | None:
    """Why a graph of one step does not fit the others; None if all steps run the same ops."""
    variants = len(set(inspect.signatures))
    details = {"variants": variants, "steps": inspect.steps}
    return Skip("skipped", Reason("ops_change", details)) if variants > 1 else None


PASS = ReplayPass
