"""Samples of the timing passes: what a step and an iteration took with no profiler on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from launchscope.model import TimingResult

__all__ = ["StepTimes", "step_times"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds per step of one kind. The GPU's are empty where there was none.

    `iteration` and `host_iteration` run from the end of the step before, so the first step of
    the pass has none. `host_between` is the host's part of them outside the step. `looks_ms`
    has the median iteration of each look that has one.
    """

    iteration: Floats
    host_iteration: Floats
    step: Floats
    host: Floats
    host_between: Floats
    wall_check_pct: float | None  # |wall time - time on the event clock| of a pass, the largest
    steps: int  # of all kinds
    looks_ms: tuple[float, ...] = ()


def step_times(looks: Sequence[TimingResult], kind: int | None = None) -> StepTimes | None:
    """Times of the steps of `kind`, or of all, from every look together; None without a look.

    Where the looks differ the median is that of most steps. Two looks that agree are more
    steps than the third.
    """
    found = [_of_look(look, kind) for look in looks]
    if not found:
        return None
    checks = [each.wall_check_pct for each in found if each.wall_check_pct is not None]

    def together(part: Callable[[StepTimes], Floats]) -> Floats:
        return np.concatenate([part(each) for each in found])

    return StepTimes(
        iteration=together(lambda times: times.iteration),
        host_iteration=together(lambda times: times.host_iteration),
        step=together(lambda times: times.step),
        host=together(lambda times: times.host),
        host_between=together(lambda times: times.host_between),
        wall_check_pct=max(checks, default=None),
        steps=sum(each.steps for each in found),
        looks_ms=tuple(float(np.median(e.iteration)) for e in found if len(e.iteration)),
    )


def _of_look(timing: TimingResult, kind: int | None) -> StepTimes:
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
    check = abs(wall - gpu_end[-1]) / wall * 100 if gpu_steps and wall > 0 else None
    return StepTimes(
        iteration=np.diff(gpu_end)[gpu_wanted[1:]],
        host_iteration=np.diff(host_end)[wanted[1:]],
        step=(gpu_end - gpu_begin)[gpu_wanted & ~np.isnan(gpu_begin)],
        host=(host_end - host_begin)[wanted],
        host_between=(host_begin[1:] - host_end[:-1])[wanted[1:]],
        wall_check_pct=None if check is None else float(check),
        steps=steps,
    )
