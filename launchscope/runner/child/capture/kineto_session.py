"""One session of torch's profiler (Kineto), and what that profiler itself costs per launch."""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from launchscope.model import CALIBRATION_RANGE, STEP_RANGE, Calibration
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.torch_types import Torch, Value

# CUPTI's number for the legacy default stream of a process's first context.
_LEGACY_STREAM = 7
# A queue of launches blocks at about a thousand: chunks stay well below it.
_CHUNKS, _OPS_PER_CHUNK = 7, 100


def is_busy(torch: Torch, user_profiles: bool) -> bool:
    """Whether the script's own profiler has CUPTI, or may ask for it."""
    return user_profiles or bool(torch._C._autograd._profiler_enabled())


class KinetoSession:
    """Starts and stops the profiler, marks steps in it, and writes the trace.

    Raises ReasonError if another profiler owns CUPTI in this process.
    """

    def __init__(self, torch: Torch, user_profiles: bool):
        if is_busy(torch, user_profiles):
            raise ReasonError("profiler_busy")
        self._torch = torch
        activity = torch.profiler.ProfilerActivity
        # Not acc_events: with it torch makes a Python object of each event at the end.
        self._profiler = torch.profiler.profile(activities=[activity.CPU, activity.CUDA])
        self._range: Value = None

    def start(self) -> None:
        # Without this CUPTI stays attached after the session: every later launch costs about
        # a fifth more, and a graph replay three times its host time (H200, torch 2.11).
        os.environ["TEARDOWN_CUPTI"] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profiler.start()

    def begin_range(self, name: str) -> None:
        self.end_range()
        self._range = self._torch.autograd.profiler.record_function(name)
        self._range.__enter__()

    def end_range(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def stop(self, path: Path) -> int:
        """End the session, write a Kineto trace to `path`; the count of legacy-stream kernels."""
        self.end_range()
        self._torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profiler.stop()
            self._profiler.export_chrome_trace(os.fspath(path))
        device = self._torch.autograd.DeviceType.CUDA
        return sum(
            event.device_resource_id() == _LEGACY_STREAM and event.device_type() == device
            for event in self._profiler.profiler.kineto_results.events()
        )


def step_range(index: int) -> str:
    return f"{STEP_RANGE}#{index}"


class LaunchCost:
    """Host time of one tiny op, with and without the profiler: the difference is its cost.

    Made before a session; `traced_us` is called inside it and `calibration` after it.
    """

    def __init__(self, torch: Torch):
        self._torch = torch
        self._target = torch.zeros(1, device="cuda")
        self._target.add_(1)
        self._plain_us = self._op_us()

    def traced_us(self, session: KinetoSession) -> float:
        """After the steps of the session; the range has a name of its own."""
        session.begin_range(CALIBRATION_RANGE)
        traced_us = self._op_us()
        session.end_range()
        return traced_us

    def calibration(self, traced_us: float) -> Calibration:
        """Runs one more session that only records the GPU, as CUPTI does."""
        profiler = self._torch.profiler
        launch_us = None
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])
            short.start()
            launch_us = self._op_us()
            short.stop()
        return Calibration(self._plain_us, traced_us, _CHUNKS * _OPS_PER_CHUNK, launch_us)

    def _op_us(self) -> float:
        """Median over chunks; each begins with an empty queue, so no launch is blocked."""
        target, now = self._target, perf_counter_ns
        chunks = []
        for _ in range(_CHUNKS):
            self._torch.cuda.synchronize()
            begun = now()
            for _ in range(_OPS_PER_CHUNK):
                target.add_(1)
            chunks.append((now() - begun) / _OPS_PER_CHUNK / 1e3)
        self._torch.cuda.synchronize()
        return median(chunks)
