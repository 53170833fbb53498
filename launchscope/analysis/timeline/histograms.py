"""How long launch calls, kernels, and what is between them took in the used steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from launchscope.analysis.timeline.lines import Lines
from launchscope.model import Extreme, Histogram, Histograms
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints, numbered, where

# Six bins per decade from 100 ns on, and one for what is shorter.
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_EDGES_NS = np.array([0, *(round(step * 10**power) for power in range(2, 18) for step in _STEPS)])
# Outliers are above the third quartile by more than so many interquartile ranges, and above its
# double: on a quiet machine that range is a few nanoseconds.
_FAR_OUT, _AT_LEAST = 3.0, 2.0
_LARGEST = 5


def histograms_of(lines: Lines) -> Histograms:
    """Of the used steps of the work that the lines are of."""
    work = lines.work
    launches, activities, used = work.launches, work.activities, work.iterations.used
    launch, duration = ints(activities, c.LAUNCH), ints(activities, c.DUR)
    is_kernel = where(activities[c.KIND], c.KERNEL.__eq__)
    ran = np.flatnonzero(np.isin(work.activity_step, used) & is_kernel)
    launched = ran[launch[ran] >= 0]
    # Activities are by start: the first one of a launch.
    launching, at = np.unique(launch[launched], return_index=True)
    first = launched[at]
    begun = ints(activities, c.START)[first]
    called, returned, call = (ints(launches, column) for column in (c.START, c.END, c.DUR))
    calls = np.flatnonzero(np.isin(work.step, used) & ~np.asarray(launches[c.BLOCKING], bool))
    own = launched[ints(launches, c.KERNELS)[launch[launched]] == 1]
    short = int((duration[own] < call[launch[own]]).sum())
    kernel_name, kernel_names = numbered(activities, c.NAME)
    call_name, call_names = numbered(launches, c.NAME)
    line = lines.where

    def of_kernels(values: Ints, rows: Ints) -> Histogram | None:
        return _histogram(values, kernel_name[rows], kernel_names, line[launch[rows]])

    return Histograms(
        launch_delay=of_kernels(begun - called[launching], first),
        queue_delay=of_kernels(np.maximum(begun - returned[launching], 0), first),
        launch_call=_histogram(call[calls], call_name[calls], call_names, line[calls]),
        kernel=of_kernels(duration[ran], ran),
        short_kernels=short / len(used) if len(own) else None,
        short_kernels_pct=100 * short / len(own) if len(own) else None,
    )


def _histogram(
    values: Ints, name: Ints, names: list[str], line: npt.NDArray[np.object_]
) -> Histogram | None:
    """Of values in ns, each with the number of its name and with its line."""
    if not len(values):
        return None
    at = np.searchsorted(_EDGES_NS, values, "right").clip(1) - 1
    edges = _EDGES_NS[at.min() : at.max() + 2] / 1e3
    quartile, middle, third, high = np.percentile(values, (25, 50, 75, 95))
    most = max(third + _FAR_OUT * (third - quartile), _AT_LEAST * third)
    outliers = np.flatnonzero(values > most)
    largest = outliers[np.argsort(-values[outliers], kind="stable")[:_LARGEST]]
    return Histogram(
        edges_us=tuple(edges.tolist()),
        counts=tuple(np.bincount(at - at.min()).tolist()),
        median_us=float(middle) / 1e3,
        p95_us=float(high) / 1e3,
        outliers=len(outliers),
        largest=tuple(Extreme(names[name[i]], float(values[i]) / 1e3, line[i]) for i in largest),
    )
