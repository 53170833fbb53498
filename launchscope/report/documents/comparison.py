"""The report of a Comparison: a row per point, curves, strategies, buckets."""

from __future__ import annotations

from collections.abc import Callable

from launchscope.model import Comparison, Point, PointFailure
from launchscope.reason_text import failure_text
from launchscope.report.document import (
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
    sections,
)
from launchscope.report.documents.buckets import bucket_section
from launchscope.report.documents.labels import VERDICTS, command, machine, parameters, titled
from launchscope.report.documents.strategies import strategy_section
from launchscope.wording import count, figures, pct, shapes, times

_LEGEND = (
    "eager, replay: milliseconds per iteration · step, iter.: speedup of the step and of the "
    "iteration · removed, exposed, busy: shares of the eager iteration"
)
_RATES = " · replayed: samples/s with the replay"
_HEADINGS = {"batch_size": "batch"}
_PREDICTED = "~ predicted from the trace; no replay was measured"
_WHAT_IF = "(what if) measured with the blocking lines stubbed out"
_STRUCTURE = "Structure only: nothing ran on a GPU."


def document(comparison: Comparison, top: int) -> Document:
    """Everything a report shows of a Comparison; nothing in it is cut at `top`."""
    environment, axes = comparison.environment, comparison.axes
    # The headline is about the axes; without them about the strategies, else about the buckets.
    ladders, plans = comparison.ladders, comparison.buckets
    return Document(
        badge="COMPARISON",
        tone="calm",
        title=command(comparison.target),
        headline=comparison.headline or "The measurements side by side.",
        context=(
            *((machine(environment),) if environment.torch else ()),
            *(f"{name.replace('_', ' ')}: {', '.join(values)}" for name, values in axes.items()),
        ),
        sections=sections(
            _points(comparison),
            *_plots(comparison),
            *(strategy_section(ladder, has_headline=bool(axes)) for ladder in ladders),
            *(bucket_section(plan, has_headline=bool(axes or ladders)) for plan in plans),
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


def _points(comparison: Comparison) -> Section | None:
    points = comparison.points
    if not points:
        return None
    rehearsed = _is_rehearsed(comparison)
    blocks: list[Block] = [*(_structure(points) if rehearsed else _times(points))]
    blocks += [Paragraph(_failure(point), "bad") for point in points if point.failure is not None]
    return Section("Point by point", tuple(blocks))


def _failure(point: Point) -> str:
    """`batch size 1024: out of GPU memory (exit code 1)`."""
    failure, name = point.failure, parameters(point.parameters)
    assert failure is not None
    # Other reasons name the exit code themselves.
    has_code = failure.out_of_memory and failure.exit_code is not None
    code = f" (exit code {failure.exit_code})" if has_code else ""
    return f"{name + ': ' if name else ''}{failure_text(failure)}{code}"


_Cells = tuple[Column, Callable[[Point], Cell | str | None]]


def _table(points: tuple[Point, ...], *columns: _Cells) -> Table:
    """A row per point, named by its parameters."""
    names = dict.fromkeys(name for point in points for name in point.parameters)

    def parameter(name: str) -> _Cells:
        return Column(_HEADINGS.get(name, name.replace("_", " ")), key=True), (
            lambda point: point.parameters.get(name, "")
        )

    return Table.of(points, *map(parameter, names), *columns)


def _figure(
    heading: str,
    value: str | Callable[[Point], float | None],
    text: Callable[[float], str] = figures,
    *,
    replay: bool = False,
) -> _Cells:
    """A column of a metric, by key, or of another figure; a predicted `replay` is marked."""

    def cell(point: Point) -> str | None:
        found = point.value(value) if isinstance(value, str) else value(point)
        is_predicted = replay and point.value("replay_ms") is None
        return None if found is None else ("~" if is_predicted else "") + text(found)

    return Column(heading), cell


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else figures(value)


def _mib(value: float) -> str:
    return f"{figures(value)} MiB"  # one unit for the whole column


def _speedup(point: Point) -> float | None:
    verdict = None if point.profile is None else point.profile.verdict
    return point.value("speedup") if verdict is None else verdict.speedup


def _busy_pct(point: Point) -> float | None:
    iteration, busy = point.value("iteration_ms"), point.value("iteration_busy_ms")
    return 100 * busy / iteration if busy is not None and iteration else None


def _times(points: tuple[Point, ...]) -> list[Block]:
    has_rates = any(point.batch_size is not None for point in points)
    rates = (
        _figure("samples/s", lambda point: point.samples_per_s, _rate),
        _figure("replayed", lambda point: point.replay_samples_per_s, _rate, replay=True),
    )
    table = _table(
        points,
        _figure("eager", "iteration_ms"),
        _figure("replay", "projected_iteration_ms", replay=True),
        _figure("step", _speedup, times, replay=True),
        _figure("iter.", "iteration_speedup", times, replay=True),
        _figure("removed", "removable_pct", pct, replay=True),
        (Column("verdict", "left", fit="wrap"), _verdict),
        _figure("launches", "launches_per_step", count),
        _figure("exposed", "launch_overhead_pct", pct),
        _figure("busy", _busy_pct, pct),
        *(rates if has_rates else ()),
        _figure("graph", "graph_memory_mib", _mib),
    )
    legend = [_LEGEND + (_RATES if has_rates else "")]
    known = [point.profile for point in points if point.profile is not None]
    if any(profile.value("replay_ms") is None for profile in known):
        legend.append(_PREDICTED)
    if any(_is_what_if(point) for point in points):
        legend.append(_WHAT_IF)
    return [table, *(Paragraph(line, "dim") for line in legend)]


def _is_what_if(point: Point) -> bool:
    verdict = None if point.profile is None else point.profile.verdict
    return verdict is not None and verdict.basis == "what_if"


def _verdict(point: Point) -> Cell | None:
    """The verdict, or what became of the point; both where it was measured in part."""
    failure = None if point.failure is None else _short_failure(point.failure, point)
    verdict = None if point.profile is None else point.profile.verdict
    if verdict is None:
        return None if failure is None else Cell(failure, "bad")
    label, tone = VERDICTS[verdict.recommendation]
    label += " (what if)" if _is_what_if(point) else ""
    return Cell(label if failure is None else f"{label}, {failure}", tone)


def _short_failure(failure: PointFailure, point: Point) -> str:
    if failure.out_of_memory:
        return "out of memory"
    if failure.exit_code is not None:
        return f"failed, exit code {failure.exit_code}"
    return "not measured" if point.profile is None else "in part"


def _structure(points: tuple[Point, ...]) -> list[Block]:
    def inputs(point: Point) -> str | None:
        seen = () if point.profile is None else point.profile.shapes.signatures
        return shapes(seen[0].inputs) if seen else None

    def blockers(point: Point) -> str | None:
        return None if point.profile is None else str(len(point.profile.blockers))

    table = _table(
        points,
        _figure("device ops", "device_ops_per_step", count),
        _figure("op streams", "shape_signatures", count),
        (Column("blockers"), blockers),
        (Column("verdict", "left", fit="wrap"), _verdict),
        (Column("inputs of a step", "left", fit="cut"), inputs),
    )
    return [table, Paragraph(_STRUCTURE, "dim")]


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
        title = titled("Milliseconds per iteration by batch size", dict(fixed))
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
