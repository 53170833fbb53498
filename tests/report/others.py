"""A difference and ranks for tests: values that commands make of several Profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from launchscope.analysis.comparison.collectives import Collectives
from launchscope.analysis.comparison.profiles import difference
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.model import Difference, KernelRow, Metric, Ranks
from launchscope.model.comparison import RankRow
from launchscope.rules import advise
from tests.rules.profiles import profile


def difference_of_two() -> Difference:
    """A step that became slower, lost a kernel, and gained one with a long name."""
    before = advise(profile())
    kernels = (
        replace(before.kernels[0], total_us=1_700.0),
        before.kernels[1],
        KernelRow(f"void at::native::{'reduce_' * 12}kernel<float>", 1234, 58.0),
    )
    after = advise(profile(metrics={"iteration_ms": 12.4, "step_ms": 12.1}, kernels=kernels))
    return difference(before, after, ("before.json", "after.json"))


def ranks_of_three() -> Ranks:
    """Two ranks of equal work, one that is late, and a file that could not be read."""
    rows, collectives = [], {}
    for rank, waits_ms in enumerate((1.8, 1.7, 0.1)):
        metrics = {"communication_ms": waits_ms + 0.2, "exposed_communication_ms": waits_ms}
        made = advise(profile(metrics={"iteration_ms": 11.2}))
        times = {key: Metric(value, "ms") for key, value in metrics.items()}
        made = replace(made, metrics=made.metrics | times)
        name = f"rank{rank}.json"
        rows.append(replace(rank_row(made, name), rank=rank))
        ends = np.arange(1, 4) * 11_200_000
        kernels = ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",) * 3
        collectives[name] = Collectives(kernels, ends - round(1e6 * waits_ms), ends)
    broken = RankRow("rank3.json", problem="rank3.json is no JSON")
    return ranks_of([*rows, broken], collectives)


def workloads() -> Ranks:
    """Three scripts that have nothing to do with one another."""
    made = (("train.py", 9.4), ("a/long/path/to/serve.py --batch-size 64", 1.2), ("fit.py", 24.0))
    rows = [
        replace(rank_row(advise(profile(metrics={"iteration_ms": ms})), name), target=name)
        for name, ms in made
    ]
    return ranks_of(rows)
