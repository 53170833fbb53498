"""Captures the step, or a first part of it, inside the script's run and measures its replay."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from typing import Literal

from launchscope.model import Reason, ReplayResult, SourceLine, StepPart
from launchscope.runner.child.capture.bursts import Bursts
from launchscope.runner.child.capture.capture import Capture, CapturedStep, LiveReplay
from launchscope.runner.child.capture.state import (
    DeviceState,
    OptimizerFlags,
)
from launchscope.runner.child.capture.stubs import StubMismatchError, Stubs
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import Pass
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.reasons import ReasonError, is_out_of_memory, reason_of
from launchscope.runner.child.source_lines import raising_frame, user_line
from launchscope.runner.child.torch_types import Storage

Scope = Literal["full_step", "forward_backward", "forward", "region"]


class CapturePass(Pass[ReplayResult]):
    """A warm step under the optimizer flags, a capture, then bursts: eager, replay, eager, ...

    Nothing runs during the capture, so the graph is replayed once after it. After each burst
    of replays the saved state is put back. Both times the state is what one eager step would
    have left; with stubs nearly so, because the captured step used values of the step before.
    """

    result_type = ReplayResult
    captures = True
    captured: Scope | None = None  # None: the whole step, whatever it is
    last_part: StepPart | None = None  # the part of the step that is captured last; None: all

    @classmethod
    def cut_off(cls, reason: Reason) -> ReplayResult:
        return ReplayResult("failed", reason, scope=cls.captured or "full_step")

    def scope(self) -> Scope:
        return self.captured or self.context.boundary.scope

    def make_stubs(self) -> Stubs | None:
        """What replaces blocking operations; None where there are none."""
        return None

    def start(self, context: Context) -> None:
        super().start(context)
        # Without the optimizer in the graph its flags do not matter.
        mine = context.optimizers if self.last_part is None else []
        self._flags = OptimizerFlags(context.torch, mine)
        self._state = DeviceState(
            context.torch,
            context.modules,
            context.optimizers,
            context.written_storages,
        )
        self._stubs = self.make_stubs()
        self._phase = "warm"
        self._capture: Capture | None = None
        self._captured: CapturedStep | None = None
        self._bursts: Bursts | None = None
        self._first_replay_ms: float | None = None
        self._memory_mib: float | None = None
        self._kind = 0
        self._kept: list[Storage] = []
        self._where: SourceLine | None = None

    # -------------------------------------------------------------------------- steps

    def begin(self) -> None:
        if self._stubs is not None:  # still there if the script broke a step off
            self._stubs.leave()
        if not self.context.is_main_kind():
            return
        if self._phase == "warm":
            self._flags.apply()
            if self._stubs is not None:
                self._stubs.record()
        elif self._phase == "capture":
            self._capture = Capture(self.context.torch)
            self._where = user_line(sys._getframe(1))
            self._keep_inputs()
            self._capture.begin()
            if self._stubs is not None:
                self._stubs.play()
        elif self._bursts is not None:
            self._bursts.open()

    def part_ended(self, part: StepPart) -> None:
        if part == self.last_part:
            self._close()

    def end(self) -> bool:
        if self.last_part is None:
            self._close()
        if self._phase == "warm" and self.context.is_main_kind():
            self._phase = "capture"
        elif self._bursts is not None:
            self._phase = "bursts"
            self._bursts.after_step()
        return self._bursts is not None and self._bursts.done

    def _close(self) -> None:
        """The captured part of the step is over."""
        if self._stubs is not None:
            self._stubs.leave()
        if self._phase == "capture":
            self._end_capture()
        elif self._phase == "bursts" and self._bursts is not None:
            self._bursts.close()

    def _end_capture(self) -> None:
        """Nothing has run yet: do the work with one replay, before the script reads its results."""
        if self._capture is None:
            return
        torch = self.context.torch
        self._keep_inputs()  # that the step itself fetched
        captured = self._capture.end()
        if captured.nodes == 0:
            raise ReasonError("empty_graph")
        self._captured, self._capture = captured, None
        self._kind = self.context.step_kind()
        began = time.perf_counter()
        captured.replay()
        torch.cuda.synchronize()
        self._first_replay_ms = (time.perf_counter() - began) * 1e3
        used = captured.free_before - torch.cuda.mem_get_info()[0]
        self._memory_mib = max(0.0, used / 2**20)
        self._flags.revert()
        steps = self.context.schedule.replay
        self._bursts = Bursts(torch, captured, self._state, self._flags, steps)

    def _keep_inputs(self) -> None:
        """Keep the memory of every live tensor: replays read the captured addresses.

        The script drops its batch after the step, and the allocator would reuse the memory
        that replays read. Storages are kept instead of tensors because those would keep
        autograd graphs alive.
        """
        tensor = self.context.torch.Tensor
        for entry in gc.get_objects():
            if issubclass(type(entry), tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    self._kept.append(entry.untyped_storage())

    # ------------------------------------------------------------------------ results

    def failed_inside_step(self, error: BaseException) -> ReplayResult | None:
        """An error during the capture is a result: this step cannot be captured.

        So is running out of memory later: the graph needs its memory beside that of eager.
        """
        starved = self._captured is not None and is_out_of_memory(error)
        return self.failed(error) if starved or self._capture is not None else None

    def failed(self, error: BaseException) -> ReplayResult:
        """A failed replay with the reason; the results of the eager passes are on disk already."""
        if self._stubs is not None:
            with contextlib.suppress(Exception):
                self._stubs.leave()
        if self._capture is not None:
            self._capture.abandon()
        return ReplayResult(
            status="blocked" if isinstance(error, StubMismatchError) else "failed",
            reason=reason_of(error),
            where=user_line(raising_frame(error)) or self._where,
            scope=self.scope(),
            changes=self._flags.changes,
        )

    def live(self) -> LiveReplay:
        """For the passes after this one; only after a capture."""
        assert self._captured is not None
        return LiveReplay(self._captured, self._state, self._flags, self._kept, self._stubs)

    def finish(self, complete: bool) -> ReplayResult | None:
        if self._stubs is not None:
            with contextlib.suppress(StubMismatchError):
                self._stubs.leave()
        if self._captured is None or self._bursts is None:
            self._flags.revert()
            return None
        inspect = self.context.result(InspectPass)
        stubs, bursts = self._stubs, self._bursts
        reason = None
        if not bursts.replay:
            reason = Reason("script_ended")
        elif stubs is not None and stubs.used:
            reason = Reason("blockers_stubbed", {"count": stubs.used})
        elif stubs is not None:
            reason = Reason("blockers_skipped")
        return ReplayResult(
            status="failed"
            if not bursts.replay
            else "what_if"
            if stubs and stubs.used
            else "measured",
            reason=reason,
            scope=self.scope(),
            changes=self._flags.changes,
            eager_bursts=tuple(bursts.eager),
            replay_bursts=tuple(bursts.replay),
            host_replay_us=bursts.host_us,
            capture_ms=self._captured.capture_ms,
            instantiate_ms=self._captured.instantiate_ms,
            first_replay_ms=self._first_replay_ms,
            graph_nodes=self._captured.nodes,
            graph_memory_mib=self._memory_mib,
            input_bytes=None if inspect is None else inspect.input_bytes,
            input_tensors=None if inspect is None else inspect.input_tensors,
            kind=self._kind,
        )
