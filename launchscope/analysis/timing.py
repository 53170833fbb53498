"""Samples of the timing passes: what a step and an iteration took with no profiler on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from launchscope.model import TimingResult

__all__ = ["StepTimes", "step_times"]

Floats = npt.NDArray[np.float64]


# Looks whose median iterations differ by more than this, and than their own spread, disagree.
_APART = 0.10
_FEWEST = 5  # iterations of a look; of fewer the spread is not known


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds per step of one kind. The GPU's are empty where there was none.

    `iteration` and `host_iteration` run from the end of the step before, so the first step of
    a look has none. `host_between` is the host's part of them outside the step. `looks_ms` has
    the median iteration of each look; where `unsteady`, the samples are those of the fastest.
    """

    iteration: Floats
    host_iteration: Floats
    step: Floats
    host: Floats
    host_between: Floats
    wall_check_pct: float | None  # |wall time - time on the event clock| of the whole pass
    steps: int  # of the timing pass, all kinds
    looks_ms: tuple[float, ...] = ()
    unsteady: bool = False


def step_times(
    looks: Sequence[TimingResult], kind: int | None = None, *, alike: bool = True
) -> StepTimes | None:
    """Times of the steps of `kind`, or of all, from looks at different moments of one run.

    None without a look; the first is the timing pass. Looks that agree are taken together.
    Where they do not, although the steps are `alike`, the fastest counts: whatever else runs on
    a machine makes a host slower and never faster.
    """
    found = [_of_look(look, kind) for look in looks]
    if not found:
        return None
    timed = [each for each in found if len(each.iteration)]
    looks_ms = tuple(float(np.median(each.iteration)) for each in timed)
    unsteady = alike and _disagree(timed, looks_ms)
    used = [timed[looks_ms.index(min(looks_ms))]] if unsteady else found

    def together(part: Callable[[StepTimes], Floats]) -> Floats:
        return np.concatenate([part(each) for each in used])

    return StepTimes(
        iteration=together(lambda times: times.iteration),
        host_iteration=together(lambda times: times.host_iteration),
        step=together(lambda times: times.step),
        host=together(lambda times: times.host),
        host_between=together(lambda times: times.host_between),
        wall_check_pct=max(
            (e.wall_check_pct for e in used if e.wall_check_pct is not None), default=None
        ),
        steps=found[0].steps,
        looks_ms=looks_ms,
        unsteady=unsteady,
    )


def _disagree(looks: Sequence[StepTimes], looks_ms: Sequence[float]) -> bool:
    """Whether the medians are further apart than the interquartile range of any look."""
    if len(looks) < 2 or min(looks_ms) <= 0 or min(len(k.iteration) for k in looks) < _FEWEST:
        return False
    spread = [
        float(np.subtract(*np.percentile(look.iteration, (75, 25)))) / ms
        for look, ms in zip(looks, looks_ms, strict=True)
    ]
    return max(looks_ms) / min(looks_ms) - 1 > max(_APART, *spread)


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
    # Of a pass that the script cut short it is not known when the GPU came to the end.
    known = timing.complete and gpu_steps > 0 and wall > 0
    check = abs(wall - gpu_end[-1]) / wall * 100 if known else None
    return StepTimes(
        iteration=np.diff(gpu_end)[gpu_wanted[1:]],
        host_iteration=np.diff(host_end)[wanted[1:]],
        step=(gpu_end - gpu_begin)[gpu_wanted & ~np.isnan(gpu_begin)],
        host=(host_end - host_begin)[wanted],
        host_between=(host_begin[1:] - host_end[:-1])[wanted[1:]],
        wall_check_pct=None if check is None else float(check),
        steps=steps,
    )
