"""One session of torch's profiler (Kineto), and what that profiler itself costs per launch."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
from pathlib import Path
from statistics import median

from launchscope.model import CALIBRATION_RANGE, STEP_RANGE, Calibration
from launchscope.runner.child.reasons import ReasonError
from launchscope.runner.child.torch_types import Torch, Value

# CUPTI's number for the legacy default stream of a process's first context.
_LEGACY_STREAM = 7
# A queue of launches blocks at about a thousand: chunks stay well below it.
_CHUNKS, _OPS_PER_CHUNK = 7, 100


class ProfilerBusyError(ReasonError):
    """Another profiler owns CUPTI in this process."""


class KinetoSession:
    """Starts and stops the profiler, marks steps in it, and writes the trace."""

    def __init__(self, torch: Torch, user_profiles: bool):
        if user_profiles or torch._C._autograd._profiler_enabled():
            raise ProfilerBusyError("profiler_busy")
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
        require_whole(path)
        return self._legacy_kernels()

    def _legacy_kernels(self) -> int:
        results = self._profiler.profiler.kineto_results
        device = self._torch.autograd.DeviceType.CUDA
        return sum(
            event.device_type() == device and event.device_resource_id() == _LEGACY_STREAM
            for event in results.events()
        )


def require_whole(path: Path) -> None:
    """Raises OSError if the end of the trace is missing: Kineto ignores that a disk is full.

    Then the file is removed, so that there is room for the results.
    """
    ending = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
        ending = file.read()
    if not ending.rstrip().endswith(b"}"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise OSError(errno.ENOSPC, "the trace could not be written whole; is TMPDIR full?")


def step_range(index: int) -> str:
    return f"{STEP_RANGE}#{index}"


class LaunchCost:
    """Host time of one tiny op, with and without the profiler: the difference is its cost."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._target = torch.zeros(1, device="cuda")
        self._target.add_(1)
        self._plain_us: float | None = None
        self._traced_us: float | None = None

    def measure_plain(self) -> None:
        self._plain_us = self._op_us()

    def measure_traced(self, session: KinetoSession) -> None:
        """Call inside a session, after the steps; its range has a name of its own."""
        session.begin_range(CALIBRATION_RANGE)
        self._traced_us = self._op_us()
        session.end_range()

    def measure_launch(self) -> Calibration | None:
        """Call after that session: runs one more that only records the GPU, as CUPTI does."""
        if self._plain_us is None or self._traced_us is None:
            return None
        profiler = self._torch.profiler
        launch_us = None
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])
            short.start()
            launch_us = self._op_us()
            short.stop()
        return Calibration(self._plain_us, self._traced_us, _CHUNKS * _OPS_PER_CHUNK, launch_us)

    def _op_us(self) -> float:
        """Median over chunks; each begins with an empty queue, so no launch is blocked."""
        target, clock = self._target, time.perf_counter_ns
        chunks = []
        for _ in range(_CHUNKS):
            self._torch.cuda.synchronize()
            begun = clock()
            for _ in range(_OPS_PER_CHUNK):
                target.add_(1)
            chunks.append((clock() - begun) / _OPS_PER_CHUNK / 1e3)
        self._torch.cuda.synchronize()
        return median(chunks)
