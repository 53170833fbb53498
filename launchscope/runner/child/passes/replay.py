"""Captures the step inside the script's run and measures its replay."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Literal

from launchscope.model import (
    BlockerRecord,
    LibraryLine,
    Reason,
    ReplayResult,
    SourceLine,
    StepPart,
)
from launchscope.runner.child.capture.capture import Bursts, Capture, LiveReplay
from launchscope.runner.child.capture.stubs import StubMismatchError
from launchscope.runner.child.facts.blocking import OTHER, UNKNOWN_OP
from launchscope.runner.child.facts.reasons import is_out_of_memory, reason_of
from launchscope.runner.child.facts.source_lines import code_place, raising_frame, user_line
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.capture_pass import (
    CapturePass,
    ops_change,
    uncapturable,
    without_stubs,
)
from launchscope.runner.child.passes.inspect import InspectPass, records_of

# cudaErrorStreamCaptureInvalidated: an earlier call has broken the capture, without an error.
_INVALIDATED = 901
Scope = Literal["full_step", "forward_backward", "forward", "region"]


class BurstsPass(CapturePass[ReplayResult]):
    """After the capture bursts: eager, replay, eager, ... After each burst of replays the saved
    state is put back."""

    scope: Scope | None = None  # None: the whole step, whatever it is

    def start(self, context: Context) -> None:
        super().start(context)
        self._bursts: Bursts | None = None  # this and the next: from the capture on
        self._result: ReplayResult | None = None
        self._where: SourceLine | None = None
        self._part: StepPart = "forward"  # that the step is in

    def begin(self) -> None:
        self._part = "forward"
        super().begin()
        if self._bursts is not None and self._is_usual:
            self._bursts.open()

    def begin_capture(self) -> None:
        self._where = user_line(sys._getframe(1))
        super().begin_capture()

    def part_ended(self, part: StepPart) -> None:
        self._part = "backward" if part == "forward" else "optimizer"
        super().part_ended(part)

    def close(self) -> None:
        super().close()
        if self._bursts is not None:
            self._bursts.close()

    def end(self) -> bool:
        super().end()
        if self._bursts is None:
            return False
        self._bursts.after_step()
        return self._bursts.done

    def captured(self, capture: Capture, live: LiveReplay) -> None:
        context = self.context
        self._bursts = Bursts(context.torch, live, self.wanted, context.ranks)
        inspect = context.result(InspectPass)
        self._result = ReplayResult(
            status="measured",
            scope=self.scope or context.boundary.scope,
            changes=self._flags.changes,
            capture_ms=capture.capture_ms,
            instantiate_ms=capture.instantiate_ms,
            first_replay_ms=capture.first_replay_ms,
            graph_nodes=capture.nodes,
            graph_memory_mib=capture.memory_mib,
            input_bytes=None if inspect is None else inspect.input_bytes,
            input_tensors=None if inspect is None else inspect.input_tensors,
            kind=context.step_kind(),
        )

    def failed_inside_step(self, error: BaseException) -> ReplayResult | None:
        """An error during the capture is a result: this step cannot be captured.

        So is running out of memory later: the graph needs memory in addition to the eager step.
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
            scope=self.scope or self.context.boundary.scope,
            changes=self._flags.changes,
        )

    def finish(self, complete: bool) -> ReplayResult | None:
        stubs, bursts = self._stubs, self._bursts
        self._leave_stubs()
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
        return replace(result, status="what_if", reason=reason)


class ReplayPass(BurstsPass):
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

    def skipped(self, context: Context, skip: Skip) -> ReplayResult:
        inspect = context.result(InspectPass) if skip.status == "blocked" else None
        where = inspect.blockers[0].where if inspect and inspect.blockers else None
        return ReplayResult(skip.status, skip.reason, where)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        self.context.replay = self._live
        return result


PASS = ReplayPass
