"""What a report of a comparison says, apart from how it looks: tables of text and sentences."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope import wording
from launchscope.model import Comparison, Point
from launchscope.report.comparison.buckets import BucketSection, bucket_sections
from launchscope.report.comparison.ladder import LadderSection, ladder_sections
from launchscope.report.comparison.plot import Series
from launchscope.rules.verdict.crossover import crossover_sentence

VERDICTS = {
    "adopt": "adopt",
    "adopt_after_fixes": "adopt after fixes",
    "adopt_bucketed": "adopt bucketed",
    "already_graphed": "already graphed",
    "stay_eager": "stay eager",
    "unsafe": "unsafe",
    "inconclusive": "inconclusive",
}
_WHAT_IF = "(what if) with the blocking lines stubbed"
_PREDICTED = "~ predicted from the trace, no replay was measured"
_NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """`key` columns are told on every part of a table that is too wide for the page."""

    heading: str
    right: bool = True
    key: bool = False


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plot:
    """Curves of milliseconds over batch sizes; `mark` is the crossover."""

    title: str
    series: tuple[Series, ...]
    mark: float | None = None


@dataclass(frozen=True)
class ComparisonContent:
    title: str
    headline: str
    context: tuple[str, ...]
    table: Table | None
    failures: tuple[str, ...]
    crossovers: tuple[str, ...]
    plots: tuple[Plot, ...]
    ladders: tuple[LadderSection, ...]
    buckets: tuple[BucketSection, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]


def content_of(comparison: Comparison, *, next_commands: tuple[str, ...] = ()) -> ComparisonContent:
    """Everything a report shows of a Comparison."""
    said = tuple(crossover_sentence(found) for found in comparison.crossovers)
    points = comparison.points
    rehearsed = bool(points) and _rehearsed(comparison)
    return ComparisonContent(
        title=" ".join((comparison.target.name, *comparison.target.args)),
        headline=comparison.headline,
        context=_context(comparison),
        table=_structure(points) if rehearsed else _times(points),
        failures=tuple(_failure(point) for point in points if point.failure is not None),
        crossovers=() if rehearsed or comparison.headline in said else said,
        plots=() if rehearsed else _plots(comparison),
        ladders=ladder_sections(comparison),
        buckets=bucket_sections(comparison),
        notes=comparison.notes,
        next=next_commands,
    )


def _rehearsed(comparison: Comparison) -> bool:
    """Whether there was no GPU; that no point could be measured does not say so."""
    modes = {point.profile.mode for point in comparison.points if point.profile is not None}
    if not modes:
        environment = comparison.environment
        return environment.torch is not None and environment.device is None
    return modes == {"rehearsal"}


def _context(comparison: Comparison) -> tuple[str, ...]:
    environment = comparison.environment
    machine = [environment.device or "no CUDA device"]
    named = (("PyTorch", environment.torch), ("CUDA", environment.cuda))
    machine += [f"{name} {version}" for name, version in named if version]
    if environment.driver:
        machine.append(f"driver {environment.driver}")
    lines = [" · ".join(machine)] if environment.torch else []
    lines += [f"{name}: {', '.join(values)}" for name, values in comparison.axes.items()]
    return tuple(lines)


def name_of(parameters: dict[str, str]) -> str:
    """`batch_size 8, width 64`."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in parameters.items())


def _failure(point: Point) -> str:
    assert point.failure is not None
    failure = point.failure
    name = name_of(point.parameters)
    code = "" if failure.exit_code is None else f" (exit code {failure.exit_code})"
    already = code and f"exit code {failure.exit_code}" in failure.reason
    return f"{name + ': ' if name else ''}{failure.reason}{'' if already else code}"


# ------------------------------------------------------------------------------ the table


def _parameter_columns(points: tuple[Point, ...]) -> list[str]:
    names: dict[str, None] = {}
    for point in points:
        names |= dict.fromkeys(point.parameters)
    return list(names)


def _times(points: tuple[Point, ...]) -> Table | None:
    if not points:
        return None
    names = _parameter_columns(points)
    columns = [Column(name.replace("_", " ").replace("batch size", "batch"), key=True)
               for name in names]  # fmt: skip
    columns += [
        Column("eager"),
        Column("replay"),
        Column("step"),
        Column("iter."),
        Column("removed"),
        Column("verdict", right=False),
        Column("launches"),
        Column("exposed"),
        Column("busy"),
        Column("samples/s"),
        Column("replayed"),
        Column("graph"),
    ]
    rows = tuple(
        (*(point.parameters.get(name, "") for name in names), *_cells(point)) for point in points
    )
    legend = [
        "eager and replay: ms per iteration; step and iter.: speed-ups of step and iteration; "
        "busy: of the eager iteration; replayed: samples/s with the replay"
    ]
    if any("~" in cell for row in rows for cell in row):
        legend.append(_PREDICTED)
    if any("(what if)" in cell for row in rows for cell in row):
        legend.append(_WHAT_IF)
    if all(point.batch_size is None for point in points):
        keep = [i for i, c in enumerate(columns) if c.heading not in ("samples/s", "replayed")]
        columns = [columns[i] for i in keep]
        rows = tuple(tuple(row[i] for i in keep) for row in rows)
    return Table(tuple(columns), rows, tuple(legend))


def _cells(point: Point) -> tuple[str, ...]:
    if point.profile is None:
        return (*(_NOTHING,) * 5, _short_failure(point), *(_NOTHING,) * 6)
    profile = point.profile
    iteration, busy = point.value("iteration_ms"), point.value("iteration_busy_ms")
    measured = point.value("replay_ms") is not None
    mark = "" if measured else "~"
    verdict = profile.verdict
    said = _NOTHING if verdict is None else VERDICTS[verdict.recommendation]
    if verdict is not None and verdict.basis == "what_if":
        said += " (what if)"
    if point.failure is not None:
        said += f", {_short_failure(point)}"
    step = verdict.speedup if verdict is not None else point.value("speedup")
    return (
        _figure(iteration),
        _marked(mark, _figure(point.value("projected_iteration_ms"))),
        _marked(mark, _or_nothing(step, wording.times)),
        _marked(mark, _or_nothing(point.value("iteration_speedup"), wording.times)),
        _marked(mark, _or_nothing(point.value("removable_pct"), wording.pct)),
        said,
        _or_nothing(point.value("launches_per_step"), lambda value: f"{value:,.0f}"),
        _or_nothing(point.value("launch_overhead_pct"), wording.pct),
        _or_nothing(100 * busy / iteration if busy is not None and iteration else None,
                    wording.pct),
        _or_nothing(point.samples_per_s, _rate),
        _marked(mark, _or_nothing(point.replay_samples_per_s, _rate)),
        _or_nothing(point.value("graph_memory_mib"), lambda value: f"{wording.figures(value)} MiB"),
    )  # fmt: skip


def _structure(points: tuple[Point, ...]) -> Table | None:
    names = _parameter_columns(points)
    columns = [Column(name.replace("_", " "), key=True) for name in names]
    columns += [
        Column("device ops"),
        Column("signatures"),
        Column("blockers"),
        Column("verdict", right=False),
        Column("inputs of a step", right=False),
    ]
    rows = []
    for point in points:
        head = tuple(point.parameters.get(name, "") for name in names)
        if point.profile is None:
            rows.append((*head, *(_NOTHING,) * 3, _short_failure(point), _NOTHING))
            continue
        profile = point.profile
        seen = profile.shapes.signatures
        verdict = profile.verdict
        rows.append(
            (
                *head,
                wording.number(profile.metrics.get("device_ops_per_step")),
                wording.number(profile.metrics.get("shape_signatures")),
                str(len(profile.blockers)),
                _NOTHING if verdict is None else VERDICTS[verdict.recommendation],
                _shortened(seen[0].inputs) if seen else _NOTHING,
            )
        )
    return Table(tuple(columns), tuple(rows), ("structure only: nothing ran on a GPU",))


def _short_failure(point: Point) -> str:
    assert point.failure is not None
    if point.failure.out_of_memory:
        return "out of memory"
    if point.failure.exit_code is not None:
        return f"failed, exit code {point.failure.exit_code}"
    return "not measured" if point.profile is None else "in part"


def _shortened(text: str, longest: int = 36) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _figure(value: float | None) -> str:
    return _NOTHING if value is None else wording.figures(value)


def _marked(mark: str, text: str) -> str:
    return text if text == _NOTHING else mark + text


def _or_nothing(value: float | None, text: object) -> str:
    return _NOTHING if value is None or not callable(text) else str(text(value))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else wording.figures(value)


# ------------------------------------------------------------------------------ the plots


def _plots(comparison: Comparison) -> tuple[Plot, ...]:
    groups: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in comparison.points:
        if point.batch_size is not None and point.profile is not None:
            others = {k: v for k, v in point.parameters.items() if k != "batch_size"}
            groups.setdefault(tuple(others.items()), []).append(point)
    marks = {tuple(c.parameters.items()): c.batch_size for c in comparison.crossovers}
    plots = []
    for fixed, points in groups.items():
        points.sort(key=lambda point: point.batch_size or 0)
        series = tuple(
            Series(name, tuple((float(p.batch_size or 0), ms) for p in points
                               if (ms := p.value(key)) is not None and ms > 0))
            for name, key in (("eager", "iteration_ms"), ("replay", "projected_iteration_ms"))
        )  # fmt: skip
        if max(len(curve.points) for curve in series) < 2:
            continue
        title = "Milliseconds per iteration against the batch size"
        if fixed:
            title += f", {name_of(dict(fixed))}"
        plots.append(Plot(title, tuple(s for s in series if s.points), marks.get(fixed)))
    return tuple(plots)
