"""The report of a Comparison: a row per point, and strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from launchscope.model import (
    Comparison,
    Metric,
    Point,
    PointFailure,
    Strategies,
    Strategy,
    Trajectory,
)
from launchscope.reason_text import cause_text, failure_text, reason_text
from launchscope.report import frames
from launchscope.report.document import (
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
from launchscope.wording import count, figures, ms, pct, plural, shapes, times

_LEGEND = (
    "eager, replay: milliseconds per iteration · step, iter.: speedup of the step and of the "
    "iteration · removed, waiting, busy: shares of the eager iteration (waiting: GPU idle, waiting "
    "for launches)"
)
_LONGEST_REASON = 40  # a longer one follows the table of strategies


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


# ----------------------------------------------------------------------------- the table


def _points(comparison: Comparison) -> Section:
    points = comparison.points
    if not points:
        return Section("", ())
    blocks = _structure(comparison) if is_rehearsed(comparison) else _times(comparison)
    failures = [_failure(point, point.failure) for point in points if point.failure is not None]
    return Section("Point by point", (*blocks, *(Paragraph(text, "bad") for text in failures)))


def _failure(point: Point, failure: PointFailure) -> str:
    """`batch size 1024: out of GPU memory (exit code 1)`."""
    name = f"batch size {point.batch_size}: " if point.batch_size else ""
    # Other reasons name the exit code themselves.
    has_code = failure.out_of_memory and failure.exit_code is not None
    code = f" (exit code {failure.exit_code})" if has_code else ""
    return f"{name}{failure_text(failure)}{code}"


def _marked(text: Callable[[float], str]) -> Callable[[float | None, bool], str | None]:
    """A figure of the replay, with a sign where the replay is predicted."""

    def cell(value: float | None, is_predicted: bool) -> str | None:
        return None if value is None else ("~" if is_predicted else "") + text(value)

    return cell


def _table(comparison: Comparison, *columns: Column) -> Table:
    """A row per point, named by its batch size."""
    texts: dict[str, list[Any]] = {
        "outcome": list(map(_outcome, comparison.points)),
        "inputs": list(map(_inputs, comparison.points)),
    }
    points = frames.points(comparison).assign(**texts)
    has_sizes = any(point.batch_size for point in comparison.points)
    key = [Column("batch", "batch_size", str, key=True)] if has_sizes else []
    return Table.of(points, *key, *columns)


def _mib(value: float) -> str:
    return f"{figures(value)} MiB"  # one unit for the whole column


def _times(comparison: Comparison) -> list[Block]:
    points = comparison.points
    has_rates = any(point.batch_size is not None for point in points)
    rates = (
        Column("samples/s", "samples_per_s", figures),
        Column("replayed", ("replay_samples_per_s", "predicted"), _marked(figures)),
    )
    table = _table(
        comparison,
        Column("eager", "iteration_ms", figures),
        Column("replay", ("replayed_iteration_ms", "predicted"), _marked(figures)),
        Column("step", ("speedup", "predicted"), _marked(times)),
        Column("iter.", ("iteration_speedup", "predicted"), _marked(times)),
        Column("removed", ("removable_pct", "predicted"), _marked(pct)),
        words("verdict", "outcome", fit="wrap"),
        Column("launches", "launches_per_step", count),
        Column("waiting", "launch_overhead_pct", pct),
        Column("busy", "busy_pct", pct),
        *(rates if has_rates else ()),
        Column("graph", "graph_memory_mib", _mib),
    )
    legend = [_LEGEND + (" · replayed: samples/s with the replay" if has_rates else "")]
    if any(point.profile is not None and point.value("replay_ms") is None for point in points):
        legend.append("~ predicted from the trace; no replay was measured")
    if any(map(_is_what_if, points)):
        legend.append("(lines skipped) measured with the blocking lines skipped")
    return [table, *(Paragraph(line, "dim") for line in legend)]


def _structure(comparison: Comparison) -> list[Block]:
    table = _table(
        comparison,
        Column("device ops", "device_ops_per_step", count),
        Column("op sequences", "shape_signatures", count),
        Column("blockers", "blockers", count),
        words("verdict", "outcome", fit="wrap"),
        words("inputs of a step", "inputs", fit="cut"),
    )
    return [table, Paragraph("Structure only: nothing ran on a GPU.", "dim")]


def _inputs(point: Point) -> str | None:
    seen = () if point.profile is None else point.profile.shapes.signatures
    return shapes(seen[0].inputs) if seen else None


def _is_what_if(point: Point) -> bool:
    verdict = None if point.profile is None else point.profile.verdict
    return verdict is not None and verdict.basis == "what_if"


def _outcome(point: Point) -> Cell | None:
    """The verdict, or what became of the point; both where it was measured in part."""
    verdict = None if point.profile is None else point.profile.verdict
    failure = _short_failure(point)
    if verdict is None or point.profile is None:
        return Cell(failure, "bad") if failure else None
    label, tone = answer(point.profile)
    label += " (lines skipped)" if _is_what_if(point) else ""
    return Cell(f"{label}, {failure}" if failure else label, tone)


def _short_failure(point: Point) -> str:
    if point.failure is None:
        return ""
    if point.failure.out_of_memory:
        return "out of memory"
    if point.failure.exit_code is not None:
        return f"failed, exit code {point.failure.exit_code}"
    return "not measured" if point.profile is None else "in part"


# ------------------------------------------------------------------------ the strategies


def _strategies(strategies: Strategies) -> Section:
    """One table and what does not fit into it; of one batch size below the headline."""
    table = Table.of(
        strategies.tried,
        words("strategy", "mode", key=True),
        Column("iteration", ("iteration_ms", "projected"), _iteration),
        Column("speedup", "speedup", times),
        Column("setup", "setup_ms", ms),
        Column("reserved", "memory_mib", _mib),
        Column("in graphs", "graph_share_pct", pct),
        words("result vs. eager", ("trajectory", "iteration_ms", "failure"), _result, fit="wrap"),
    )
    size = strategies.batch_size
    blocks: list[Block] = [Paragraph(strategies.headline)] if size else []
    details = tuple(line for strategy in strategies.tried for line in _details(strategy))
    blocks += [table, Items(details)] if details else [table]
    return Section(f"Strategies, batch size {size}" if size else "Strategies", tuple(blocks))


def _is_timed(iteration: Metric | None) -> bool:
    return iteration is not None and iteration.value is not None


def _iteration(metric: Metric | None, is_projected: bool) -> Cell | None:
    if not _is_timed(metric):
        return None
    iteration = measured(metric)
    return Cell(("~" if is_projected else "") + iteration.text, spread=iteration.spread)


def _result(
    trajectory: Trajectory, iteration: Metric | None, failure: PointFailure | None
) -> Cell | str | None:
    """`loss within 0.02 % over 16 steps`."""
    if not _is_timed(iteration):
        why = "failed" if failure is None else failure_text(failure)
        return Cell(why if len(why) <= _LONGEST_REASON else "not measured, see below", "bad")
    if trajectory.status == "reference":
        return None
    if trajectory.status == "not_compared":
        return Cell("not compared", "caution")
    over = f"over {plural(trajectory.steps, 'step')}"
    largest = trajectory.largest_pct
    if largest == 0:
        return f"{trajectory.what} equal {over}"
    if largest is None:
        return f"{trajectory.what} {trajectory.status} {over}"
    by = f"{largest:.1g} %" if 0 < largest < 0.05 else pct(largest)
    if trajectory.status == "follows":
        return f"{trajectory.what} within {by} {over}"
    limit = trajectory.tolerance_pct
    allowed = "" if limit is None else f" (limit {pct(limit)})"
    return Cell(f"{trajectory.what} off by {by}{allowed}", "bad")


def _details(strategy: Strategy) -> Iterator[str]:
    """What does not fit into a row."""
    failure, result, trajectory = strategy.failure, strategy.result, strategy.trajectory
    if failure is not None:
        text = failure_text(failure)
        if _is_timed(strategy.iteration_ms) or len(text) > _LONGEST_REASON:
            yield f"{strategy.mode}: {text}" + (f" ({failure.hint})" if failure.hint else "")
    if strategy.projected:
        source = "speedup in alternation" if strategy.mode == "adopt" else "replay of the step"
        yield f"{strategy.mode}: ~ projected from the measured {source}"
    if failure is None and trajectory.reason is not None:
        yield f"{strategy.mode}: {reason_text(trajectory.reason)}"
    elif failure is None and trajectory.causes:
        yield f"{strategy.mode}: {'; '.join(map(cause_text, trajectory.causes))}"
    if result is None or strategy.mode != "compile" or strategy.iteration_ms is None:
        return
    if result.skipped_graphs:
        skipped = plural(result.skipped_graphs, "part")
        yield f"compile: Inductor made no CUDA graph for {skipped}: TORCH_LOGS=cudagraphs shows why"
    else:
        yield "compile: Inductor skipped no CUDA graph"
