"""The report of a Comparison: a row per point, and strategies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launchscope.model import Comparison, Metric, Point, Strategies, Strategy, Trajectory
from launchscope.reason_text import cause_text, failure_text, reason_text
from launchscope.report import frames
from launchscope.report.document import (
    EMPTY,
    Block,
    Cell,
    Column,
    Document,
    Items,
    Paragraph,
    Section,
    Table,
    measured,
    notes,
    sections,
    words,
)
from launchscope.report.documents.labels import answer, command, machine
from launchscope.wording import count, figures, mib, ms, pct, plural, times

_LEGEND = (
    "eager, replay: milliseconds per iteration · step, iter.: speedup of the step and of the "
    "iteration · removed, waiting, busy: shares of the eager iteration (waiting: GPU idle, waiting "
    "for launches) · replayed: samples/s with the replay"
)
_BASES = {"what_if": " (lines skipped)", "predicted": " (predicted)"}


def document(comparison: Comparison, top: int) -> Document:
    """Everything a report shows of a Comparison; nothing in it is cut at `top`."""
    environment = comparison.environment
    sizes = [f"{point.batch_size}" for point in comparison.points if point.batch_size]
    return Document(
        badge="COMPARISON",
        tone="calm",
        title=command(comparison.target),
        headline=comparison.headline or "The measurements side by side.",
        context=(
            *((machine(environment),) if environment.torch else ()),
            *((f"batch size: {', '.join(sizes)}",) if sizes else ()),
        ),
        sections=sections(
            _points(comparison),
            *map(_strategies, comparison.strategies),
            notes(comparison.notes),
        ),
    )


def is_rehearsed(comparison: Comparison) -> bool:
    """Whether there was no GPU: a comparison without any measured point does not show that."""
    modes = {point.profile.mode for point in comparison.points if point.profile is not None}
    environment = comparison.environment
    has_no_gpu = environment.torch is not None and environment.device is None
    return modes == {"rehearsal"} if modes else has_no_gpu


def _points(comparison: Comparison) -> Section:
    """A row per point, named by its batch size, and what kept it from being measured."""
    points = comparison.points
    if not points:
        return Section("", ())
    verdicts: list[Any] = list(map(_verdict, points))
    table = Table.of(
        frames.points(comparison).assign(verdict=verdicts),
        *([Column("batch", "batch_size", str, key=True)] if points[0].batch_size else []),
        *(_structure() if is_rehearsed(comparison) else _times()),
    )
    legend = "Structure only: nothing ran on a GPU." if is_rehearsed(comparison) else _LEGEND
    failures = [Paragraph(_failure(point), "bad") for point in points if point.failure is not None]
    return Section("Point by point", (table, Paragraph(legend, "dim"), *failures))


def _times() -> Iterator[Column]:
    yield Column("eager", "iteration_ms", figures)
    yield Column("replay", "replayed_iteration_ms", figures)
    yield Column("step", "speedup", times)
    yield Column("iter.", "iteration_speedup", times)
    yield Column("removed", "removable_pct", pct)
    yield words("verdict", "verdict", fit="wrap")
    yield Column("launches", "launches_per_step", count)
    yield Column("waiting", "launch_overhead_pct", pct)
    yield Column("busy", "busy_pct", pct)
    yield Column("samples/s", "samples_per_s", figures, missing=EMPTY)
    yield Column("replayed", "replay_samples_per_s", figures, missing=EMPTY)
    yield Column("graph", "graph_memory_mib", mib)


def _structure() -> Iterator[Column]:
    yield Column("device ops", "device_ops_per_step", count)
    yield Column("op sequences", "shape_signatures", count)
    yield Column("blockers", "blockers", count)
    yield words("verdict", "verdict", fit="wrap")


def _verdict(point: Point) -> Cell:
    """With its basis, unless that is a measurement."""
    if point.profile is None:
        starved = point.failure is not None and point.failure.out_of_memory
        return Cell("out of memory" if starved else "not measured", "bad")
    label, tone = answer(point.profile)
    verdict = point.profile.verdict
    basis = "" if verdict is None else _BASES.get(verdict.basis, "")
    return Cell(f"{label}{basis}{'' if point.failure is None else ', in part'}", tone)


def _failure(point: Point) -> str:
    assert point.failure is not None
    name = f"batch size {point.batch_size}: " if point.batch_size else ""
    return name + failure_text(point.failure)


# ------------------------------------------------------------------------ the strategies


def _strategies(strategies: Strategies) -> Section:
    """One table and what does not fit into it; of one batch size below the headline."""
    table = Table.of(
        strategies.tried,
        words("strategy", "mode", key=True),
        Column("iteration", "iteration_ms", _iteration),
        Column("speedup", "speedup", times),
        Column("setup", "setup_ms", ms),
        Column("reserved", "memory_mib", mib),
        Column("in graphs", "graph_share_pct", pct),
        words("result vs. eager", ("trajectory", "iteration_ms"), _result, fit="wrap"),
    )
    size = strategies.batch_size
    blocks: list[Block] = [Paragraph(strategies.headline)] if size else []
    details = tuple(
        f"{strategy.mode}: {text}" for strategy in strategies.tried for text in _details(strategy)
    )
    return Section(
        f"Strategies, batch size {size}" if size else "Strategies",
        (*blocks, table, Items(details)) if details else (*blocks, table),
    )


def _iteration(metric: Metric) -> Cell | None:
    return None if metric.value is None else measured(metric)


def _result(trajectory: Trajectory, iteration: Metric | None) -> Cell | str | None:
    """`loss within 0.02 % over 16 steps`."""
    if iteration is None or iteration.value is None:
        return Cell("not measured", "bad")
    if trajectory.status == "reference":
        return None
    if trajectory.status == "not_compared":
        return Cell("not compared", "caution")
    over, largest = f"over {plural(trajectory.steps, 'step')}", trajectory.largest_pct
    if not largest:
        return f"{trajectory.what} {trajectory.status if largest is None else 'equal'} {over}"
    by = f"{largest:.1g} %" if largest < 0.05 else pct(largest)
    if trajectory.status == "follows":
        return f"{trajectory.what} within {by} {over}"
    return Cell(f"{trajectory.what} off by {by} {over}", "bad")


def _details(strategy: Strategy) -> Iterator[str]:
    """What does not fit into a row."""
    failure, result, trajectory = strategy.failure, strategy.result, strategy.trajectory
    if failure is not None:
        yield failure_text(failure) + (f" ({failure.hint})" if failure.hint else "")
    elif trajectory.reason is not None:
        yield reason_text(trajectory.reason)
    elif trajectory.causes:
        yield "; ".join(map(cause_text, trajectory.causes))
    if strategy.projected:
        source = "speedup in alternation" if strategy.mode == "adopt" else "replay of the step"
        yield f"projected from the measured {source}"
    if result is not None and result.skipped_graphs:
        skipped = plural(result.skipped_graphs, "part")
        yield f"Inductor made no CUDA graph for {skipped}: TORCH_LOGS=cudagraphs shows why"
