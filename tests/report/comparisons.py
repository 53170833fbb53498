"""Comparisons for tests: five batch sizes and four strategies."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from launchscope.analysis.comparison.points import crossover, with_rates
from launchscope.model import (
    Comparison,
    Metric,
    Point,
    PointFailure,
    Profile,
    Reason,
    Shapes,
    ShapeSignature,
    Strategies,
    Strategy,
    StrategyResult,
    Target,
    Trajectory,
)
from launchscope.rules import advise
from launchscope.rules.verdict.crossover import headline_of
from launchscope.rules.verdict.strategies import advised as advised_strategies
from tests.rules.profiles import profile, rehearsal
from tests.shapes import tensors

TARGET = Target("script", "train.py", ("--epochs", "1"))
# Batch size: eager iteration, iteration with the replay, exposed overhead, launches.
SIZES = {
    8: (9.39, 1.91, 79.0, 555),
    32: (9.52, 4.05, 56.0, 555),
    128: (13.9, 12.3, 11.0, 561),
    256: (24.1, 24.0, 0.4, 561),
}


def at(batch_size: int, eager: float, replayed: float, exposed: float, launches: int) -> Point:
    """A measured point of these figures."""
    made = profile(
        metrics={
            "iteration_ms": eager,
            "replayed_iteration_ms": replayed,
            "iteration_busy_ms": eager * (1 - exposed / 100),
            "removable_pct": Metric(100 * (1 - replayed / eager), "%"),
            "iteration_speedup": eager / replayed,
            "speedup": 1.02 * eager / replayed,
            "launch_overhead_pct": exposed,
            "launches_per_step": launches,
            "graph_memory_mib": 18.0 * batch_size,
        }
    )
    shapes = Shapes(True, (ShapeSignature(3, tensors(f"({batch_size}, 256) float32")),))
    advised = advise(replace(made, shapes=shapes))
    return with_rates(
        Point(
            dataclasses.replace(TARGET, args=(*TARGET.args, "--batch-size", str(batch_size))),
            batch_size,
            advised,
        )
    )


def failed(batch_size: int, failure: PointFailure) -> Point:
    return Point(TARGET, batch_size, None, failure)


def comparison() -> Comparison:
    """Four sizes with a crossover, and one that did not fit."""
    starved = PointFailure(Reason("script_out_of_memory"), 1)
    points = (*(at(size, *figures) for size, figures in SIZES.items()), failed(1024, starved))
    found = crossover(points, 15.0)
    measured = points[0].profile
    assert measured is not None
    return Comparison(
        target=TARGET,
        environment=measured.environment,
        mode="gpu",
        points=points,
        headline=headline_of(points, found, same=False),
        crossover=found,
    )


def rehearsed() -> Comparison:
    """Two sizes on a machine without a GPU."""
    points = tuple(Point(TARGET, size, _rehearsal(size)) for size in (8, 32))
    measured = points[0].profile
    assert measured is not None
    return Comparison(
        TARGET,
        measured.environment,
        "rehearsal",
        points,
        headline=headline_of(points, crossover(points, 15.0), same=False),
    )


def _rehearsal(batch_size: int) -> Profile:
    shapes = Shapes(True, (ShapeSignature(3, tensors(f"({batch_size}, 256) float32")),))
    return advise(replace(rehearsal(), shapes=shapes))


def strategies() -> Comparison:
    """Four strategies: replay fastest, compile with a skipped graph, graphed refused."""
    tried = (
        Strategy(
            "eager",
            Metric.of_samples([9.3, 9.4, 9.4, 9.5], "ms"),
            memory_mib=410.0,
            speedup=1.0,
            graph_share_pct=0.0,
            trajectory=Trajectory("reference"),
        ),
        Strategy(
            "replay",
            Metric(3.52, "ms"),
            speedup=9.4 / 3.52,
            projected=True,
            setup_ms=39.2,
            memory_mib=552.0,
            graph_share_pct=100.0,
            trajectory=Trajectory("follows", "update", 4, 0.0),
        ),
        Strategy(
            "compile",
            Metric.of_samples([4.1, 4.2, 4.2, 4.3], "ms"),
            speedup=9.4 / 4.2,
            setup_ms=31_400.0,
            memory_mib=640.0,
            graph_share_pct=71.0,
            trajectory=Trajectory("follows", "loss", 16, 0.021, 1.0),
            result=StrategyResult(
                "adopted",
                settle_ms=(30_120.0, 950.0, 8.1, 4.2),
                graphs=1,
                recompilations=0,
                skipped_graphs=1,
            ),
        ),
        Strategy(
            "graphed",
            failure=PointFailure(Reason("keyword_inputs", {"module": "GPT", "names": "mask"})),
        ),
    )
    advised = advised_strategies(Strategies(tried), 15.0)
    return Comparison(
        TARGET,
        profile().environment,
        "gpu",
        (),
        headline=advised.headline,
        strategies=(advised,),
    )
