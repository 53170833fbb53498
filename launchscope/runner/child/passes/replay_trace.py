"""Traces a few replays, and one eager step under the same optimizer flags to compare with."""

from __future__ import annotations

from launchscope.model import SAME_FLAGS_RANGE, Reason, ReplayTraceResult
from launchscope.runner.child.capture.kineto_session import KinetoSession, is_busy, step_range
from launchscope.runner.child.passes import Context, Pass, Skip

REPLAY_FILE = "replay.kineto.json"
_REPLAYS = 3


class ReplayTracePass(Pass[ReplayTraceResult]):
    """Left out with the replay pass; takes one step of the script."""

    name = "replay_trace"
    captures = True
    with_ranks = True

    def skip(self, context: Context) -> Skip | None:
        # What fails here ends the process, before the passes that need no profiler.
        busy = is_busy(context.torch, context.hooks.user_profiler)
        return Skip("skipped", Reason("profiler_busy")) if busy else None

    def start(self, context: Context) -> None:
        super().start(context)
        assert context.replay is not None
        self._live = context.replay
        self._flags = self._live.flags  # for `undo`
        self._session = KinetoSession(context.torch, context.hooks.user_profiler)
        self._live.flags.apply()
        self._session.start()

    def begin(self) -> None:
        self._session.begin_range(f"{SAME_FLAGS_RANGE}#0")
        if self._live.stubs is not None:  # eager must run what the graph holds
            self._live.stubs.play(strict=False)

    def end(self) -> bool:
        torch = self.context.torch
        if self._live.stubs is not None:
            self._live.stubs.leave()
        self._session.end_range()
        torch.cuda.synchronize()
        self._live.state.save()
        self.context.ranks.check()
        for index in range(_REPLAYS):
            self._session.begin_range(step_range(index))
            self._live.graph.replay()
            self._session.end_range()
            torch.cuda.synchronize()
        return True

    def undo(self) -> bool:
        self._live.state.restore()
        return super().undo()

    def finish(self, complete: bool) -> ReplayTraceResult | None:
        self._session.stop(self.context.folder.path / REPLAY_FILE)
        self._live.state.restore()
        self._live.flags.revert()
        self._live.state.forget()
        self.context.torch.cuda.synchronize()
        return ReplayTraceResult(REPLAY_FILE) if complete else None


PASS = ReplayTracePass
