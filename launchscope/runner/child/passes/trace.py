"""Traces consecutive iterations with Kineto, for the durations on the GPU."""

from __future__ import annotations

from launchscope.model import TensorShape, TraceResult
from launchscope.runner.child.capture.kineto_session import KinetoSession, LaunchCost, step_range
from launchscope.runner.child.passes import Context, Pass

TRACE_FILE = "trace.kineto.json"
_DROP_FIRST = 1


class TracePass(Pass[TraceResult]):
    """One session over one iteration more than `--trace`: the first is dropped."""

    name = "trace"
    boundaries_only = True
    calibrates = True  # it also measures what the profiler costs per launch

    def start(self, context: Context) -> None:
        super().start(context)
        self._session = KinetoSession(context.torch, context.hooks.user_profiler)
        self._cost = LaunchCost(context.torch) if self.calibrates else None
        self._done = 0
        self._kind: list[int] = []
        self._inputs: list[tuple[TensorShape, ...]] = []
        self.wanted += _DROP_FIRST
        self._session.start()

    def begin(self) -> None:
        del self._inputs[self._done :]
        self._inputs.append(self.context.step_inputs())
        self._session.begin_range(step_range(self._done))

    def end(self) -> bool:
        self._session.end_range()
        self._kind.append(self.context.step_kind())
        self._done += 1
        return self._done >= self.wanted

    def finish(self, complete: bool) -> TraceResult | None:
        traced_us = self._cost.traced_us(self._session) if self._cost else 0.0
        legacy = self._session.stop(self.context.folder.path / TRACE_FILE)
        calibration = self._cost.calibration(traced_us) if self._cost else None
        if self._done <= _DROP_FIRST:
            return None
        return TraceResult(
            file=TRACE_FILE,
            steps=self._done,
            drop_first=_DROP_FIRST,
            side_stream=self.context.side_stream,
            legacy_kernels=legacy,
            calibration=calibration,
            kind=tuple(self._kind) if self.context.has_kinds else (),
            inputs=tuple(self._inputs[: self._done]) if any(self._inputs) else (),
        )


PASS = TracePass
