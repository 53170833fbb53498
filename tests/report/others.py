"""Values for tests beside Profiles of one step: a traced one, and what is made of several."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace

from launchscope.analysis.comparison.profiles import difference
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.analysis.timeline.annotations import Annotations, annotate
from launchscope.model import (
    Difference,
    IdleTime,
    KernelRow,
    Label,
    Lane,
    Metric,
    Profile,
    Ranks,
    StepTimeline,
    Timelines,
)
from launchscope.model.ranks import RankRow
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.builders import loop_trace
from tests.kineto_text import kineto_text
from tests.rules.profiles import profile


def traced() -> Profile:
    """A Profile with the timelines of an eager iteration with three kernels, and of its replay."""
    labels = (
        Label("aten::addmm", "host"),
        Label("cudaLaunchKernel", "launch"),
        Label("cudaStreamSynchronize", "sync"),
        Label(
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor>", "kernel"
        ),
        Label("Memcpy HtoD (Pageable -> Device)", "memcpy"),
        Label("", "framework"),
        Label("", "launch_call"),
        Label("", "sync"),
        Label("cudaGraphLaunch", "graph"),
        Label("", "other"),
    )
    eager = StepTimeline(
        "iteration",
        4,
        1_000_000,
        40_000,
        360_000,
        (
            IdleTime("framework", 300_000),
            IdleTime("launch_call", 140_000),
            IdleTime("sync", 160_000),
        ),
        (
            Lane("operator", 403, (10_000, 300_000), (150_000, 200_000), (0, 0)),
            Lane("launch", 403, (100_000, 400_000, 450_000), (40_000, 40_000, 40_000), (1, 1, 1)),
            Lane("sync", 403, (700_000,), (100_000,), (2,)),
            Lane(
                "gpu",
                7,
                (140_000, 540_000, 900_000),
                (60_000, 200_000, 100_000),
                (3, 3, 4),
                (1, 9, 1),
            ),
            Lane(
                "idle",
                None,
                (40_000, 120_000, 200_000, 420_000, 740_000),
                (80_000, 20_000, 220_000, 120_000, 160_000),
                (5, 6, 5, 6, 7),
            ),
            Lane("other", None, (0,), (40_000,), (9,)),
        ),
        merged_below_ns=250,
    )
    replay = StepTimeline(
        "step",
        4,
        400_000,
        40_000,
        360_000,
        (),
        (
            Lane("launch", 403, (0,), (50_000,), (8,)),
            Lane("gpu", 7, (40_000, 100_000, 300_000), (60_000, 200_000, 100_000), (3, 3, 4)),
        ),
    )
    return advise(replace(profile(), timelines=Timelines(labels, eager, replay)))


def annotated_trace() -> Annotations:
    """Of a trace of five iterations with two launches."""
    found: list[Annotations] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        builder = loop_trace(5, lambda b: b.op("aten::mul").launch(kernel_us=40).launch().sync())
        path.write_text(kineto_text(builder.document()))
        options = ReadOptions(
            15.0, None, details=True, on_work=lambda work: found.append(annotate(work))
        )
        profile_of(path, options)
    return found[0]


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
    rows = []
    for rank, waits_ms in enumerate((1.8, 1.7, 0.1)):
        metrics = {"communication_ms": waits_ms + 0.2, "exposed_communication_ms": waits_ms}
        made = advise(profile(metrics={"iteration_ms": 11.2}))
        times = {key: Metric(value, "ms") for key, value in metrics.items()}
        made = replace(made, metrics=made.metrics | times)
        rows.append(replace(rank_row(made, f"rank{rank}.json"), rank=rank))
    broken = RankRow("rank3.json", problem="rank3.json is no JSON")
    return ranks_of([*rows, broken])


def merged() -> Ranks:
    """Two ranks, with what a script that failed says of one."""
    rows = []
    for rank in (0, 1):
        made = rank_row(advise(profile()), f"rank {rank}")
        of_run = replace(made, target="train.py", world_size=4, traceback="Traceback:\n  x")
        rows.append(replace(of_run, rank=rank, problem="it ended" if rank else None))
    return ranks_of(rows, is_one_run=True)


def workloads() -> Ranks:
    """Three scripts that have nothing to do with one another."""
    unsure = Metric(62.5, "%", low=-5.0, high=80.0)
    made: tuple[tuple[str, dict[str, float | Metric | None]], ...] = (
        ("train.py", {"iteration_ms": 9.4}),
        ("a/long/path/to/serve.py --batch-size 64", {"iteration_ms": 1.2, "removable_pct": unsure}),
        ("fit.py", {"iteration_ms": 24.0}),
    )
    rows = [
        replace(rank_row(advise(profile(metrics=metrics)), name), target=name)
        for name, metrics in made
    ]
    return ranks_of(rows)
