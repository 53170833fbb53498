"""What a step and an iteration take with no profiler on: the samples of the timing windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from launchscope.model import TimingResult
from launchscope.parser.trace import Floats

# Windows disagree when their median iterations differ by more than this share, and by more than
# the spread inside any of them.
_DISAGREEMENT = 0.10
_MIN_ITERATIONS = 5  # of a window: with fewer its spread is unknown
# Two measurements of the same time differ by less than this, or one of them was disturbed.
BUSY_TOLERANCE_PCT = 3.0


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds per step of one kind. GPU times are empty where there was no GPU.

    `iteration` and `host_iteration` run from the end of the step before, so the first step of a
    window has none. `host_between` is the host's part of them outside the step. If the windows
    disagree (`unsteady`), the samples are those of the fastest one.
    """

    iteration: Floats
    host_iteration: Floats
    step: Floats
    host: Floats
    host_between: Floats
    wall_check_pct: float | None  # |wall time - event clock| of a whole window
    steps: int  # in the first window, of all kinds
    windows_ms: tuple[float, ...] = ()  # the median iteration of each window
    unsteady: bool = False

    @property
    def iteration_ms(self) -> float | None:
        """The median iteration."""
        return median_or_none(self.iteration)

    @property
    def step_ms(self) -> float | None:
        """The median step."""
        return median_or_none(self.step)


def median_or_none(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def step_times(
    windows: Sequence[TimingResult], kind: int | None = None, *, alike: bool = True
) -> StepTimes | None:
    """Times of the steps of `kind`, or of all, from windows at different moments of one run.

    Windows that agree are joined. If they disagree although the steps are `alike`, the fastest
    counts: other load on a machine makes a host slower and never faster. None without a window.
    """
    found = [_window(window, kind) for window in windows]
    if not found:
        return None
    timed = [window for window in found if len(window.iteration)]
    windows_ms = tuple(float(np.median(window.iteration)) for window in timed)
    unsteady = alike and _disagree(timed, windows_ms)
    used = [timed[windows_ms.index(min(windows_ms))]] if unsteady else found
    checks = [w.wall_check_pct for w in used if w.wall_check_pct is not None]
    return StepTimes(
        iteration=np.concatenate([window.iteration for window in used]),
        host_iteration=np.concatenate([window.host_iteration for window in used]),
        step=np.concatenate([window.step for window in used]),
        host=np.concatenate([window.host for window in used]),
        host_between=np.concatenate([window.host_between for window in used]),
        wall_check_pct=max(checks, default=None),
        steps=found[0].steps,
        windows_ms=windows_ms,
        unsteady=unsteady,
    )


def _disagree(windows: Sequence[StepTimes], windows_ms: Sequence[float]) -> bool:
    """Whether the medians differ by more than the interquartile range of any window."""
    shortest = min((len(window.iteration) for window in windows), default=0)
    if len(windows) < 2 or min(windows_ms) <= 0 or shortest < _MIN_ITERATIONS:
        return False
    spread = [
        float(np.subtract(*np.percentile(window.iteration, (75, 25)))) / ms
        for window, ms in zip(windows, windows_ms, strict=True)
    ]
    return max(windows_ms) / min(windows_ms) - 1 > max(_DISAGREEMENT, *spread)


def _window(timing: TimingResult, kind: int | None) -> StepTimes:
    host_begin = np.asarray(timing.host_begin_ns, np.float64) / 1e6
    host_end = np.asarray(timing.host_end_ns, np.float64) / 1e6
    steps = min(len(host_begin), len(host_end))
    gpu_begin = np.asarray(timing.gpu_begin_ms, np.float64)  # NaN where there was no event
    gpu_end = np.asarray(timing.gpu_end_ms, np.float64)
    gpu_steps = min(len(gpu_begin), len(gpu_end))
    host_begin, host_end = host_begin[:steps], host_end[:steps]
    gpu_begin, gpu_end = gpu_begin[:gpu_steps], gpu_end[:gpu_steps]
    wanted = np.ones(steps, bool)
    if kind is not None and len(timing.kind) >= steps:
        wanted = np.asarray(timing.kind[:steps]) == kind
    gpu_wanted = wanted[:gpu_steps]
    wall = (timing.host_close_ns - timing.host_open_ns) / 1e6
    # If the script cut the pass short, the GPU's end of it is unknown.
    known = timing.complete and gpu_steps > 0 and wall > 0
    return StepTimes(
        iteration=np.diff(gpu_end)[gpu_wanted[1:]],
        host_iteration=np.diff(host_end)[wanted[1:]],
        step=(gpu_end - gpu_begin)[gpu_wanted & ~np.isnan(gpu_begin)],
        host=(host_end - host_begin)[wanted],
        host_between=(host_begin[1:] - host_end[:-1])[wanted[1:]],
        wall_check_pct=float(abs(wall - gpu_end[-1]) / wall * 100) if known else None,
        steps=steps,
    )
