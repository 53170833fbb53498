"""What the report of a Comparison says: a row per point, curves, strategies, buckets."""

from __future__ import annotations

from collections.abc import Callable

from launchscope.model import Comparison, Point
from launchscope.report.document import (
    MISSING,
    Block,
    Cell,
    Column,
    Document,
    Paragraph,
    Plot,
    Section,
    Series,
    Table,
    items,
    measured,
    sections,
)
from launchscope.report.documents.buckets import bucket_section
from launchscope.report.documents.labels import VERDICTS, command, machine, parameters
from launchscope.report.documents.strategies import strategy_section
from launchscope.rules.verdict.crossover import crossover_sentence
from launchscope.wording import count, figures, pct, shapes, times

_LEGEND = (
    "eager, replay: milliseconds per iteration · step, iter.: speedup of the step and of the "
    "iteration · removed, exposed, busy: shares of the eager iteration · replayed: samples/s with "
    "the replay"
)
_PREDICTED = "~ predicted from the trace; no replay was measured"
_WHAT_IF = "(what if) measured with the blocking lines stubbed out"
_STRUCTURE = "Structure only: nothing ran on a GPU."


def document(comparison: Comparison, top: int) -> Document:
    """Everything a report shows of a Comparison; nothing in it is cut at `top`."""
    headline = comparison.headline or "The measurements side by side."
    environment = comparison.environment
    axes = tuple(
        f"{name.replace('_', ' ')}: {', '.join(values)}" for name, values in comparison.axes.items()
    )
    return Document(
        badge="COMPARISON",
        tone="calm",
        title=command(comparison.target),
        headline=headline,
        basis="",
        context=((machine(environment),) if environment.torch else ()) + axes,
        sections=sections(
            _points(comparison, headline),
            *_plots(comparison),
            *(strategy_section(ladder, headline) for ladder in comparison.ladders),
            *(bucket_section(plan, headline) for plan in comparison.buckets),
            items("Notes", comparison.notes),
        ),
    )


def _is_rehearsed(comparison: Comparison) -> bool:
    """Whether there was no GPU; that no point could be measured does not say so."""
    modes = {point.profile.mode for point in comparison.points if point.profile is not None}
    if not modes:
        environment = comparison.environment
        return environment.torch is not None and environment.device is None
    return modes == {"rehearsal"}


# ----------------------------------------------------------------------------- the table


def _points(comparison: Comparison, headline: str) -> Section | None:
    points = comparison.points
    if not points:
        return None
    rehearsed = _is_rehearsed(comparison)
    blocks: list[Block] = [*(_structure(points) if rehearsed else _times(points))]
    blocks += [Paragraph(_failure(point), "bad") for point in points if point.failure is not None]
    if not rehearsed:
        said = map(crossover_sentence, comparison.crossovers)
        blocks += [Paragraph(sentence) for sentence in said if sentence != headline]
    return Section("Point by point", tuple(blocks))


def _failure(point: Point) -> str:
    """`batch size 1024: out of GPU memory (exit code 1)`."""
    failure, name = point.failure, parameters(point.parameters)
    assert failure is not None
    # Other reasons name the exit code themselves.
    has_code = failure.out_of_memory and failure.exit_code is not None
    code = f" (exit code {failure.exit_code})" if has_code else ""
    return f"{name + ': ' if name else ''}{failure.reason}{code}"


def _parameter_columns(points: tuple[Point, ...]) -> list[str]:
    return list(dict.fromkeys(name for point in points for name in point.parameters))


def _cell(value: float | None, text: Callable[[float], str] = figures, mark: str = "") -> Cell:
    return MISSING if value is None else Cell(mark + text(value))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else figures(value)


def _mib(value: float) -> str:
    return f"{figures(value)} MiB"  # one unit for the whole column


def _times(points: tuple[Point, ...]) -> list[Block]:
    names = _parameter_columns(points)
    columns = [Column("batch" if name == "batch_size" else name.replace("_", " "), key=True)
               for name in names]  # fmt: skip
    columns += [Column(name) for name in ("eager", "replay", "step", "iter.", "removed")]
    columns.append(Column("verdict", "left"))
    columns += [Column(name) for name in ("launches", "exposed", "busy")]
    rates = any(point.batch_size is not None for point in points)
    columns += [Column("samples/s"), Column("replayed")] if rates else []
    columns.append(Column("graph"))
    rows = []
    for point in points:
        cells = [*_gains(point), _verdict(point), *_costs(point, rates=rates)]
        rows.append((*(Cell(point.parameters.get(name, "")) for name in names), *cells))
    legend = [_LEGEND]
    known = [point.profile for point in points if point.profile is not None]
    if any(profile.value("replay_ms") is None for profile in known):
        legend.append(_PREDICTED)
    if any(_is_what_if(point) for point in points):
        legend.append(_WHAT_IF)
    table = Table(tuple(columns), tuple(rows))
    return [table, *(Paragraph(line, "dim") for line in legend)]


def _mark(point: Point) -> str:
    return "" if point.value("replay_ms") is not None else "~"


def _is_what_if(point: Point) -> bool:
    verdict = None if point.profile is None else point.profile.verdict
    return verdict is not None and verdict.basis == "what_if"


def _gains(point: Point) -> list[Cell]:
    verdict = None if point.profile is None else point.profile.verdict
    mark = _mark(point)
    return [
        _cell(point.value("iteration_ms")),
        _cell(point.value("projected_iteration_ms"), mark=mark),
        _cell(point.value("speedup") if verdict is None else verdict.speedup, times, mark),
        _cell(point.value("iteration_speedup"), times, mark),
        _cell(point.value("removable_pct"), pct, mark),
    ]


def _verdict(point: Point) -> Cell:
    """The verdict, or what became of the point; both where it was measured in part."""
    failure = None if point.failure is None else _short_failure(point)
    verdict = None if point.profile is None else point.profile.verdict
    if verdict is None:
        return MISSING if failure is None else Cell(failure, "bad")
    label, tone = VERDICTS[verdict.recommendation]
    label += " (what if)" if _is_what_if(point) else ""
    return Cell(label if failure is None else f"{label}, {failure}", tone)


def _costs(point: Point, *, rates: bool) -> list[Cell]:
    iteration, busy = point.value("iteration_ms"), point.value("iteration_busy_ms")
    mark = _mark(point)
    cells = [
        _cell(point.value("launches_per_step"), count),
        _cell(point.value("launch_overhead_pct"), pct),
        _cell(100 * busy / iteration if busy is not None and iteration else None, pct),
    ]
    if rates:
        cells.append(_cell(point.samples_per_s, _rate))
        cells.append(_cell(point.replay_samples_per_s, _rate, mark))
    return [*cells, _cell(point.value("graph_memory_mib"), _mib)]


def _short_failure(point: Point) -> str:
    assert point.failure is not None
    if point.failure.out_of_memory:
        return "out of memory"
    if point.failure.exit_code is not None:
        return f"failed, exit code {point.failure.exit_code}"
    return "not measured" if point.profile is None else "in part"


def _structure(points: tuple[Point, ...]) -> list[Block]:
    names = _parameter_columns(points)
    columns = [
        *(Column(name.replace("_", " "), key=True) for name in names),
        *(Column(name) for name in ("device ops", "op streams", "blockers")),
        Column("verdict", "left"),
        Column("inputs of a step", "left", fit="cut"),
    ]
    rows = []
    for point in points:
        cells = [MISSING] * 3
        inputs = MISSING
        if point.profile is not None:
            counted = (point.profile.metrics.get(key) for key in _COUNTED)
            cells = [*map(measured, counted), Cell(str(len(point.profile.blockers)))]
            seen = point.profile.shapes.signatures
            inputs = Cell(shapes(seen[0].inputs)) if seen else MISSING
        named = (Cell(point.parameters.get(name, "")) for name in names)
        rows.append((*named, *cells, _verdict(point), inputs))
    return [Table(tuple(columns), tuple(rows)), Paragraph(_STRUCTURE, "dim")]


_COUNTED = ("device_ops_per_step", "shape_signatures")


# ----------------------------------------------------------------------------- the plots


def _plots(comparison: Comparison) -> list[Section]:
    """A plot of the batch size for each setting of the other parameters."""
    if _is_rehearsed(comparison):
        return []
    groups: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in comparison.points:
        if point.batch_size is not None and point.profile is not None:
            others = {k: v for k, v in point.parameters.items() if k != "batch_size"}
            groups.setdefault(tuple(others.items()), []).append(point)
    marks = {tuple(c.parameters.items()): c.batch_size for c in comparison.crossovers}
    found = []
    for fixed, points in groups.items():
        points.sort(key=lambda point: point.batch_size or 0)
        curves = (_series("eager", "iteration_ms", points),
                  _series("replay", "projected_iteration_ms", points))  # fmt: skip
        if max(len(curve.points) for curve in curves) < 2:
            continue
        title = ", ".join(
            filter(None, ("Milliseconds per iteration by batch size", parameters(dict(fixed))))
        )
        plot = Plot(title, tuple(c for c in curves if c.points), _mark_at(marks.get(fixed)))
        found.append(Section(title, (plot,)))
    return found


def _mark_at(batch_size: float | None) -> tuple[float, str] | None:
    """The crossover, with the batch size as the headline says it."""
    if batch_size is None:
        return None
    size = f"{batch_size:.0f}" if batch_size >= 10 else f"{batch_size:.1f}".removesuffix(".0")
    return batch_size, f"crossover, about {size}"


def _series(name: str, key: str, points: list[Point]) -> Series:
    values = ((float(point.batch_size or 0), point.value(key)) for point in points)
    return Series(name, tuple((size, ms) for size, ms in values if ms is not None and ms > 0))
