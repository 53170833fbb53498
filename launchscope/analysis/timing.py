"""What a step and an iteration take with no profiler on: the samples of the timing pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.model import TimingResult
from launchscope.parser.trace import Floats, median_of

_WINDOWS = 5  # that the iterations are split into where they come in bursts
# Two measurements of the same time differ by less than this, or one of them was disturbed.
BUSY_TOLERANCE_PCT = 3.0


_NONE = np.zeros(0)


class StepTimes(Struct, frozen=True):
    """Milliseconds per step of one kind, empty where nothing was timed; those of the GPU also where
    there was none.

    Iterations run from the end of the step before. The first step has none, because the GPU had to
    wait for the pass to begin, unless it is the only one.
    """

    iteration: Floats = _NONE
    host_iteration: Floats = _NONE
    step: Floats = _NONE
    host: Floats = _NONE
    host_between: Floats = _NONE  # of the iteration, outside the step
    wall_check_pct: float | None = None  # |wall time - event clock| of the whole pass
    steps: int = 0  # of all kinds
    # What the workers of data loaders compute for a step, each of them an equal share: however fast
    # the step is, no iteration is shorter. Their waits for files and locks are not in it.
    loader_ms: float = 0.0
    loader_workers: int = 0

    @property
    def iteration_ms(self) -> float | None:
        return median_or_none(self.iteration)

    @property
    def step_ms(self) -> float | None:
        return median_or_none(self.step)

    def in_windows(self, iteration_ms: Sequence[float], step_ms: Sequence[float]) -> StepTimes:
        """These times with the iteration and the step of longer windows, each a mean."""
        step = np.array(step_ms) if step_ms else self.step
        return replace(self, iteration=np.array(iteration_ms), step=step)

    @property
    def loading_ms(self) -> float:
        """What an iteration takes at least because of its data loader, 0.0 if that is unknown."""
        return min(self.loader_ms, self.iteration_ms or 0.0)


def median_or_none(values: Floats) -> float | None:
    return median_of(values) if len(values) else None


def _windows(iteration: Floats) -> Floats:
    """The mean iteration of each of a few windows: workers of a data loader deliver in bursts."""
    windows = np.array_split(iteration, max(min(_WINDOWS, len(iteration)), 1))
    return np.array([window.mean() for window in windows if len(window)])


def _columns(begin: Sequence[float | None], end: Sequence[float]) -> Floats:
    """Both as rows, up to the end of the shorter one; NaN where there was no event."""
    return np.array(list(zip(begin, end)), np.float64).reshape(-1, 2).T


def step_times(timing: TimingResult | None, kind: int | None = None) -> StepTimes:
    """Times of the steps of `kind`, or of all."""
    if timing is None:
        return StepTimes()
    host_begin, host_end = _columns(timing.host_begin_ns, timing.host_end_ns) / 1e6
    gpu_begin, gpu_end = _columns(timing.gpu_begin_ms, timing.gpu_end_ms)
    steps = len(host_end)
    wanted = np.ones(steps, bool)
    if kind is not None and len(timing.kind) >= steps:
        wanted = np.asarray(timing.kind[:steps]) == kind
    gpu_wanted = wanted[: len(gpu_end)]
    wall = (timing.host_close_ns - timing.host_open_ns) / 1e6
    # If the script ended during the pass, the GPU's end of the pass is unknown.
    known = timing.complete and len(gpu_end) > 0 and wall > 0
    iteration, host_iteration = np.diff(gpu_end)[gpu_wanted[1:]], np.diff(host_end)[wanted[1:]]
    if timing.loader_workers:
        iteration, host_iteration = _windows(iteration), _windows(host_iteration)
    if steps == 1:  # the pass begins at the end of the step before
        iteration, host_iteration = gpu_end[gpu_wanted], (host_end - timing.host_open_ns / 1e6)
    return StepTimes(
        iteration=iteration,
        host_iteration=host_iteration,
        step=(gpu_end - gpu_begin)[gpu_wanted & ~np.isnan(gpu_begin)],
        host=(host_end - host_begin)[wanted],
        host_between=(host_begin[1:] - host_end[:-1])[wanted[1:]],
        wall_check_pct=float(abs(wall - gpu_end[-1]) / wall * 100) if known else None,
        steps=steps,
        loader_ms=timing.loader_cpu_ns / 1e6 / max(timing.loader_workers * steps, 1),
        loader_workers=timing.loader_workers,
    )
