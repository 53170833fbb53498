"""What a step and an iteration take with no profiler on: the samples of the timing windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from launchscope.frozen import dataclass
from launchscope.model import TimingResult
from launchscope.parser.trace import Floats, median_of, quantile_of

# Windows disagree when their median iterations differ by more than this share, and by more than
# the spread inside any of them.
_DISAGREEMENT = 0.10
_MIN_ITERATIONS = 5  # of a window: with fewer its spread is unknown
_USUAL = 0.95  # of the iterations; the others may be anything, such as a search of cuDNN's
# Two measurements of the same time differ by less than this, or one of them was disturbed.
BUSY_TOLERANCE_PCT = 3.0


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds per step of one kind. GPU times are empty where there was no GPU.

    Iterations run from the end of the step before. The first step of a window has none, because the
    GPU had to wait for the window to open, unless it is the only step of the window. If the windows
    disagree (`unsteady`), the samples are those of the fastest one.
    """

    iteration: Floats
    host_iteration: Floats
    step: Floats
    host: Floats
    host_between: Floats  # of the iteration, outside the step
    wall_check_pct: float | None  # |wall time - event clock| of a whole window
    steps: int  # in the first window, of all kinds
    windows_ms: tuple[float, ...] = ()  # the median iteration of each window
    unsteady: bool = False
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

    def in_windows(self, iteration_ms: Sequence[float]) -> StepTimes:
        """These times with the iteration of longer windows, each a mean over its iterations."""
        return replace(self, iteration=np.array(iteration_ms), unsteady=False)

    @property
    def loading_ms(self) -> float:
        """What an iteration takes at least because of its data loader, 0.0 if that is unknown; no
        more than the median. Where batches come in bursts the median is far from the mean, which
        says whether the loader is the limit: its share of the mean is that of the median, too."""
        median = self.iteration_ms
        if not median or not self.loader_ms:
            return 0.0
        mean = self.iteration[self.iteration <= quantile_of(self.iteration, _USUAL)].mean()
        return min(max(self.loader_ms, median * self.loader_ms / float(mean)), median)


def median_or_none(values: Floats) -> float | None:
    return median_of(values) if len(values) else None


def step_times(
    windows: Sequence[TimingResult], kind: int | None = None, *, alike: bool = True
) -> StepTimes | None:
    """Times of the steps of `kind`, or of all, from windows at different moments of one run.

    Windows that agree are joined. If they disagree although the steps are `alike`, the fastest
    counts, because other load on a machine only makes a host slower. None without a window.
    """
    found = [_window(window, kind) for window in windows]
    if not found:
        return None
    timed = [window for window in found if len(window.iteration)]
    windows_ms = tuple(median_of(window.iteration) for window in timed)
    unsteady = alike and _disagree(timed, windows_ms)
    used = [timed[windows_ms.index(min(windows_ms))]] if unsteady else found
    checks = [w.wall_check_pct for w in used if w.wall_check_pct is not None]
    samples = ("iteration", "host_iteration", "step", "host", "host_between")
    return StepTimes(
        **{name: np.concatenate([getattr(window, name) for window in used]) for name in samples},
        wall_check_pct=max(checks, default=None),
        steps=found[0].steps,
        windows_ms=windows_ms,
        unsteady=unsteady,
        loader_ms=min(window.loader_ms for window in used),
        loader_workers=min(window.loader_workers for window in used),
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


def _columns(begin: Sequence[float | None], end: Sequence[float]) -> Floats:
    """Both as rows, up to the end of the shorter one; NaN where there was no event."""
    return np.array(list(zip(begin, end)), np.float64).reshape(-1, 2).T


def _window(timing: TimingResult, kind: int | None) -> StepTimes:
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
    if steps == 1:  # the window opens at the end of the step before
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
