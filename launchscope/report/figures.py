"""What the HTML report draws: figures as plain data, which the page's own script lays out.

Figures hold values and words; where they go, and how large they are, the page decides. Every fact
in them is also in a table of the report, or in the JSON file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from launchscope.frozen import dataclass
from launchscope.model import (
    BucketPlan,
    CheckResult,
    Comparison,
    Crossover,
    Difference,
    IdleCause,
    Label,
    LaneKind,
    OverheadRow,
    Point,
    Profile,
    RankRow,
    Ranks,
    StepTimeline,
    Strategies,
    Strategy,
    Timelines,
)
from launchscope.reason_text import failure_text
from launchscope.report.documents.comparison import is_rehearsed
from launchscope.report.documents.difference import figure, moved
from launchscope.report.documents.labels import known_by, titled
from launchscope.report.documents.launching import part_name
from launchscope.report.documents.profile import exposed_ms, is_total, stretched_trace
from launchscope.report.kernel_names import short_name
from launchscope.wording import change, count, figures, installed, ms, pct, plural, times, with_unit

Kind = Literal[
    "timeline", "depth", "stack", "runs", "histograms", "icicle", "lines", "bars", "plan", "heat"
]
CAUSES: dict[IdleCause, str] = {
    "framework": "host late: Python and framework",
    "launch_call": "host late: launch calls",
    "sync": "synchronization",
    "data": "data loading",
    "setup": "allocation and set-up",
    "dispatch": "gaps between queued kernels",
    "paused": "pause of the host",
    "unattributed": "not attributed",
}
LANES: dict[LaneKind, str] = {
    "range": "ranges",
    "operator": "operators",
    "launch": "launch calls",
    "sync": "waits",
    "gpu": "stream",
    "idle": "GPU",
    "other": "GPU",
}
_HOSTLANES: tuple[LaneKind, ...] = ("range", "operator", "launch", "sync")
# The parts of an iteration: metric, tone, and words.
_PARTS = (
    ("iteration_busy_ms", "busy", "GPU busy"),
    ("framework_ms", "framework", CAUSES["framework"]),
    ("launch_call_ms", "launch_call", CAUSES["launch_call"]),
    ("sync_wait_ms", "sync", CAUSES["sync"]),
    ("data_wait_ms", "data", CAUSES["data"]),
    ("setup_ms", "setup", CAUSES["setup"]),
    ("dispatch_gap_ms", "dispatch", CAUSES["dispatch"]),
    ("unattributed_ms", "unattributed", CAUSES["unattributed"]),
)
_FEWEST_SAMPLES = 4
_MOST_BARS = 15
_DEEPEST = 40  # modules in one another that are drawn
_MOST_PCT = 1_000.0  # of a change that is drawn
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """`data` is what the page's script draws for this `kind`; `text` says the same in words."""

    kind: Kind
    heading: str
    data: Mapping[str, Any]
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    detail: str = ""


def tiles(value: object) -> tuple[Tile, ...]:
    """The figures that a reader looks for first; none for what has none."""
    return tuple(_profile_tiles(value)) if isinstance(value, Profile) else ()


def figures_of(value: object) -> tuple[Figure, ...]:
    """The figures of a value, in the order of the page."""
    made: Iterator[Figure]
    match value:
        case Profile():
            made = _of_profile(value)
        case Comparison():
            made = _of_comparison(value)
        case Difference():
            made = _of_difference(value)
        case CheckResult():
            made = _of_check(value)
        case Ranks():
            made = _of_ranks(value)
        case _:
            made = iter(())
    return tuple(made)


def _of_rows(
    kind: Kind,
    heading: str,
    rows: Sequence[Mapping[str, Any]],
    says: str,
    note: str = "",
    **others: object,
) -> Iterator[Figure]:
    """The figure of these rows, if there are any. `says` has the form of a row in words, `others`
    is data beside the rows."""
    if rows:
        text = "; ".join(says.format_map(row) for row in rows)
        yield Figure(kind, heading, {"rows": rows, **others}, text, note)


# --------------------------------------------------------------------------- one Profile


def _profile_tiles(profile: Profile) -> Iterator[Tile]:
    if profile.mode == "rehearsal":
        yield from _rehearsal_tiles(profile)
        return
    iteration, replayed = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    whole = "Whole span" if is_total(profile) else "Iteration"
    if iteration:
        samples = len(profile.metrics["iteration_ms"].samples)
        yield Tile(f"{whole}, eager", ms(iteration), f"median of {samples}" if samples > 1 else "")
    if iteration and replayed:
        yield Tile(
            f"{whole}, replayed",
            ms(replayed),
            f"{times(iteration / replayed)}, {known_by(profile)}",
        )
    busy = profile.value("iteration_busy_ms")
    if iteration and busy is not None and not stretched_trace(profile):
        detail, alone = f"of the eager {whole.lower()}", exposed_ms(profile)
        if alone:
            detail += f", {pct(100 * alone / iteration)} in collectives alone"
        yield Tile("GPU busy", pct(100 * busy / iteration), detail)
    if (launches := profile.value("launches_per_step")) is not None:
        per = "in all" if is_total(profile) else "per eager step"
        yield Tile("Launches", count(launches), per)


def _rehearsal_tiles(profile: Profile) -> Iterator[Tile]:
    for label, key, detail in (
        ("Device operations", "device_ops_per_step", "per step"),
        ("Operation sequences", "shape_signatures", "distinct ones"),
    ):
        if (value := profile.value(key)) is not None:
            yield Tile(label, count(value), detail)
    if profile.shapes.stable is not None:  # inspected
        yield Tile("Blockers", count(len(profile.blockers)), "that a capture cannot contain")


def _replayed(profile: Profile) -> str:
    """What the replay holds: `step`, or `forward and backward` where the rest of it stays eager."""
    scope, step = profile.replay.scope, profile.step
    is_part = step is not None and scope not in (None, step.scope)
    return scope.replace("_", " and ") if is_part and scope is not None else "step"


def _of_profile(profile: Profile) -> Iterator[Figure]:
    if profile.timelines is not None:
        yield _timeline(profile.timelines, profile)
    yield from _depth(profile)
    yield from _stack(profile)
    yield from _runs(profile)
    yield from _icicles(profile)
    yield from _histograms(profile)
    if profile.ranks is not None:
        yield from _of_ranks(profile.ranks)


def _timeline(found: Timelines, profile: Profile) -> Figure:
    timelines = {"Eager": found.eager}
    if found.replay is not None:
        timelines["Replayed"] = found.replay

    def described(name: str, step: StepTimeline) -> tuple[str, float | None]:
        timed = profile.value("replay_ms" if step.what == "step" else "iteration_ms")
        title = f"{name} {_replayed(profile) if step.what == 'step' else step.what}"
        # A trace alone holds no times without a profiler.
        return title, timed if profile.mode == "gpu" else None

    described_as = {name: described(name, step) for name, step in timelines.items()}
    return _drawn("Timeline", found.labels, timelines, described_as)


def _timelines_of_ranks(ranks: Ranks) -> Iterator[Figure]:
    """The slowest rank above the one in the middle."""
    labels: list[Label] = []
    timelines: dict[str, StepTimeline] = {}
    titles: dict[str, tuple[str, float | None]] = {}
    rows = {row.name: row for row in ranks.rows}
    for found in ranks.timelines:
        if found.name not in rows:  # in a file that was edited
            continue
        first = len(labels)
        labels += found.labels
        lanes = tuple(
            replace(lane, label=tuple(first + label for label in lane.label))
            for lane in found.step.lanes
        )
        timelines[found.name] = replace(found.step, lanes=lanes)
        which = "slowest" if found.name == ranks.slowest else "in the middle"
        titles[found.name] = (f"{_rank(rows[found.name])}, {which}", None)
    if timelines:
        heading = "Timelines of the slowest rank and of the one in the middle"
        yield _drawn(heading, labels, timelines, titles)


def _drawn(
    heading: str,
    labels: Sequence[Label],
    timelines: Mapping[str, StepTimeline],
    described: Mapping[str, tuple[str, float | None]],
) -> Figure:
    """`described`: of each timeline its title, and the ms that it takes without a profiler."""
    threads = dict.fromkeys(
        lane.number for step in timelines.values() for lane in step.lanes if lane.kind in _HOSTLANES
    )
    names = {number: f"thread {at}" for at, number in enumerate(threads, 1)}
    steps = [_step(step, names, *described[name]) for name, step in timelines.items()]
    data = {
        "labels": [
            [label.name, label.kind, short_name(label.name) if label.kind == "kernel" else ""]
            for label in labels
        ],
        "causes": CAUSES,
        "steps": steps,
    }
    note = "Both at the same scale. " if len(steps) > 1 else ""
    note += (
        "What shares a pixel is stacked, each by its share of the time. The profiler stretches the "
        "host's time. Inside a gap, causes are sorted by kind: their order in time is not known."
    )
    if merged := max(step.merged_below_ns or 0 for step in timelines.values()):
        note += f" Neighbors shorter than {ms(merged / 1e6)} are drawn as one."
    if left := sum(step.lanes_left_out for step in timelines.values()):
        note += (
            f" {plural(left, 'lane')} with little activity {'is' if left == 1 else 'are'} left out."
        )
    text = " ".join(f"{step['title']}: {step['summary']}." for step in steps)
    return Figure("timeline", heading, data, text, note)


def _step(
    step: StepTimeline, threads: Mapping[int | None, str], title: str, timed: float | None
) -> dict[str, Any]:
    idle = sum(part.ns for part in step.idle)
    window = step.busy_ns + idle
    shares = [f"GPU busy {ms(step.busy_ns / 1e6)} of {ms(window / 1e6)}"]
    largest = sorted(step.idle, key=lambda part: -part.ns)[:3]
    shares += [f"{CAUSES[part.cause]} {ms(part.ns / 1e6)}" for part in largest]
    measured = f", {ms(timed)} timed without it" if timed else ""
    return {
        "title": title,
        "length": f"{ms(window / 1e6)} with the profiler{measured}",
        "summary": ", ".join(shares),
        "duration": step.duration_ns,
        "gpu": step.gpu_begin_ns,
        "lanes": [
            {
                "kind": lane.kind,
                "name": LANES[lane.kind],
                "of": f" {lane.number}" if lane.kind == "gpu" else threads.get(lane.number, ""),
                "start": lane.start_ns,
                "duration": lane.duration_ns,
                "label": lane.label,
                "count": lane.count,
            }
            for lane in step.lanes
        ],
    }


def _stack(profile: Profile) -> Iterator[Figure]:
    """The iteration's parts, eager and with the replay, as bars of one scale."""
    iteration, replayed = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    if not iteration or profile.value("iteration_busy_ms") is None:
        return
    parts = [(tone, label, profile.value(key)) for key, tone, label in _PARTS]
    if alone := exposed_ms(profile):
        computing = max((profile.value("iteration_busy_ms") or 0.0) - alone, 0.0)
        communicating = ("copy", "collectives alone", alone)
        parts[:1] = [("busy", "GPU computing", computing), communicating]
    if stretched_trace(profile):
        parts = [("unattributed", "parts not known", iteration)]
    rows = [{"name": "eager", "parts": _parts(parts), "total": ms(iteration)}]
    note = ""
    if replayed:
        is_predicted = profile.iteration_source == "predicted"
        replay = profile.value("predicted_replay_ms" if is_predicted else "replay_ms")
        inside = min(replay or 0.0, replayed)
        part = "step" if is_predicted else _replayed(profile)
        rest = [
            ("replay", f"{part} replayed", inside),
            ("rest", "rest of the iteration", replayed - inside),
        ]
        rows.append({"name": "replayed", "parts": _parts(rest), "total": ms(replayed)})
        note = f"The iteration with the replay: {known_by(profile)}."
    heading = f"Where {'the whole span' if is_total(profile) else 'an iteration'} goes"
    yield from _of_rows("stack", heading, rows, "{name} {total}", note, unit="ms")


def _parts(parts: Sequence[tuple[str, str, float | None]]) -> list[dict[str, Any]]:
    return [
        {"tone": tone, "label": label, "value": value, "text": ms(value)}
        for tone, label, value in parts
        if value is not None and value > 0
    ]


def _runs(profile: Profile) -> Iterator[Figure]:
    """Each timed sample in the order of the run."""
    rows = []
    for label, key in (
        ("iteration, eager", "iteration_ms"),
        ("step, eager", "step_ms"),
        (f"{_replayed(profile)}, replayed", "replay_ms"),
    ):
        metric = profile.metrics.get(key)
        if metric is None or metric.value is None or len(metric.samples) < _FEWEST_SAMPLES:
            continue
        half = (metric.iqr or 0.0) / 2
        rows.append(
            {
                "name": label,
                "samples": metric.samples,
                "median": metric.value,
                "low": metric.value - half,
                "high": metric.value + half,
                "text": with_unit(metric),
            }
        )
    note = "Each dot is one sample, in the order of the run. The band is the ±."
    heading = "Distribution of the timings"
    yield from _of_rows("runs", heading, rows, "{name}: {text}", note, unit="ms")


def _depth(profile: Profile) -> Iterator[Figure]:
    """How many launches wait in the queue, over a step."""
    found = profile.queue_depth
    if found is None or not found.depth:
        return
    text = f"at most {count(found.maximum)}, {figures(found.mean)} on average over {ms(found.ms)}"
    data = {"depth": found.depth, "length": found.ms * 1e6, "maximum": found.maximum}
    note = (
        f"What is launched and not finished: {text}. Near 0 the GPU waits for the host; a deep "
        "queue means that the host is ahead."
    )
    yield Figure("depth", "Queue depth over a step", data, text, note)


def _histograms(profile: Profile) -> Iterator[Figure]:
    found = profile.histograms
    if found is None:
        return
    named = (
        ("kernel", found.kernel),
        ("launch call", found.launch_call),
        ("launch call to kernel start", found.launch_delay),
        ("launch return to kernel start", found.queue_delay),
    )
    rows = [
        {
            "name": name,
            "edges": histogram.edges_us,
            "counts": histogram.counts,
            "median": histogram.median_us,
            "p95": histogram.p95_us,
            "text": f"median {ms(histogram.median_us / 1e3)}",
        }
        for name, histogram in named
        if histogram is not None
    ]
    note = "As traced. The lines are the median and the 95th percentile."
    heading = "Durations of launches and kernels"
    yield from _of_rows("histograms", heading, rows, "{name}: {text}", note)


def _icicles(profile: Profile) -> Iterator[Figure]:
    """Who launches what the GPU waits for: modules in one another, and lines in their files."""
    for noun, rows in (
        ("module", profile.overhead_by_module),
        ("line", profile.overhead_by_line),
    ):
        if rows and (tree := _tree(noun, rows))["value"] > 0:
            heading = f"Launch overhead by {noun}"
            largest = sorted(rows, key=lambda row: -(row.idle_ms or 0.0))[:3]
            text = "; ".join(
                f"{': '.join(_path(noun, row))} {ms(row.idle_ms or 0.0)}" for row in largest
            )
            note = (
                "The width is the time that the GPU waits for the host, counted for the launch "
                "that ends the wait."
            )
            yield Figure("icicle", heading, {"tree": tree}, text, note)


def _path(noun: str, row: OverheadRow) -> tuple[str, ...]:
    if part := part_name(noun, row.part):
        return (part,)
    if noun == "line" and row.where is not None:
        return installed(row.where.file), f"line {row.where.line}"
    return row.stack[:_DEEPEST] or (row.name,)


def _tree(noun: str, rows: Sequence[OverheadRow]) -> dict[str, Any]:
    """The rows as a tree of milliseconds; a parent's are its own and those of its children."""
    root: dict[str, Any] = {"name": "all", "value": 0.0, "launches": 0.0, "children": []}
    for row in rows:
        at = root
        for name in ("", *_path(noun, row)):
            if name:
                found = next((child for child in at["children"] if child["name"] == name), None)
                if found is None:
                    found = {"name": name, "value": 0.0, "launches": 0.0, "children": []}
                    at["children"].append(found)
                at = found
            at["value"] += row.idle_ms or 0.0
            at["launches"] += row.launches
    return root


# --------------------------------------------------------------------------- several


def _of_comparison(comparison: Comparison) -> Iterator[Figure]:
    if not is_rehearsed(comparison):
        yield from _curves(comparison)
    for strategies in comparison.strategies:
        yield from _ladder(strategies)
    for plan in comparison.buckets:
        yield from _plan(plan)


def _curves(comparison: Comparison) -> Iterator[Figure]:
    """The iteration by batch size, for each setting of the other parameters."""
    groups: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in sorted(comparison.points, key=lambda point: point.batch_size or 0):
        if point.batch_size:
            others = tuple((k, v) for k, v in point.parameters.items() if k != "batch_size")
            groups.setdefault(others, []).append(point)
    crossovers = {tuple(found.parameters.items()): found for found in comparison.crossovers}
    for others, points in groups.items():
        series = [
            _series("eager", "iteration_ms", points, _eager_bounds),
            _series("replay", "replayed_iteration_ms", points, _replay_bounds),
        ]
        if max(len(one["points"]) for one in series) >= 2:
            title = titled("Milliseconds per iteration by batch size", dict(others))
            yield _lines(title, [one for one in series if one["points"]], crossovers.get(others))


def _series(
    name: str, key: str, points: Sequence[Point], bounds: Callable[[Profile], Bounds | None]
) -> dict[str, Any]:
    """A curve; without bounds if a point of it has none."""
    known = [point for point in points if (point.value(key) or 0.0) > 0]
    values = [(float(point.batch_size or 0), point.value(key) or 0.0) for point in known]
    ends = [bounds(point.profile) for point in known if point.profile is not None]
    texts = [ms(y) for _, y in values]
    shown = () if None in ends else ends
    return {"name": name, "points": values, "bounds": shown, "texts": texts}


def _eager_bounds(profile: Profile) -> Bounds | None:
    """Half of the interquartile range around the iteration."""
    metric = profile.metrics["iteration_ms"]
    half, value = (metric.iqr or 0.0) / 2, metric.value or 0.0
    return value - half, value + half


def _replay_bounds(profile: Profile) -> Bounds | None:
    """What the bounds of the gain leave of the iteration."""
    iteration, removed = profile.value("iteration_ms"), profile.metrics.get("removable_pct")
    if iteration is None or removed is None or removed.low is None or removed.high is None:
        return None
    return iteration * (1 - removed.high / 100), iteration * (1 - removed.low / 100)


def _lines(title: str, series: Sequence[Mapping[str, Any]], crossover: Crossover | None) -> Figure:
    mark = _mark(crossover, [x for one in series for x, _ in one["points"]])
    data = {"series": series, "mark": mark, "x": "batch size", "y": "ms per iteration"}
    text = "; ".join(
        f"{one['name']}: " + ", ".join(f"{ms(y)} at {figures(x)}" for x, y in one["points"])
        for one in series
    )
    note = "Both axes are logarithmic."
    if any(one["bounds"] for one in series):
        note += " The bars span the spread or the bounds of the projection."
    return Figure("lines", title, data, text, note)


def _mark(crossover: Crossover | None, sizes: Sequence[float]) -> tuple[float, str] | None:
    """The crossover, with the batch size as the headline says it; None if it is not between sizes
    that are shown."""
    size = None if crossover is None else crossover.batch_size
    if size is None or not min(sizes) <= size <= max(sizes):
        return None
    text = f"{size:.0f}" if size >= 10 else f"{size:.1f}".removesuffix(".0")
    return size, f"crossover, about {text}"


def _ladder(strategies: Strategies) -> Iterator[Figure]:
    rows = []
    for strategy in strategies.tried:
        metric = strategy.iteration_ms
        value = None if metric is None else metric.value
        row: dict[str, Any] = {
            "name": strategy.mode,
            "value": value,
            "text": _strategy_text(strategy),
        }
        if metric is not None and value is not None and metric.iqr:
            row |= {"low": value - metric.iqr / 2, "high": value + metric.iqr / 2}
        rows.append(row | {"tone": "plain" if strategy.mode == strategies.best else "muted"})
    if any(row["value"] is not None for row in rows):
        heading = titled("Strategies, milliseconds per iteration", strategies.parameters)
        yield from _of_rows("bars", heading, rows, "{name}: {text}", unit="ms")


def _strategy_text(strategy: Strategy) -> str:
    metric = strategy.iteration_ms
    if metric is None or metric.value is None:
        return "failed" if strategy.failure is None else failure_text(strategy.failure)
    shown = ("~" if strategy.projected else "") + ms(float(metric.value))
    return shown if strategy.speedup is None else f"{shown} · {times(strategy.speedup)}"


def _plan(plan: BucketPlan) -> Iterator[Figure]:
    """How often each size was seen, and which sizes one graph serves."""
    sizes = sorted((c.size, c.steps) for c in plan.sizes if c.size is not None)
    if len(sizes) < 2:
        return
    buckets = [
        {
            "low": bucket.low,
            "high": bucket.high,
            "text": f"sizes {bucket.low} to {bucket.high}, padded to {bucket.high}: "
            f"{plural(bucket.steps, 'step')}, {ms(bucket.replay_ms)} replayed",
        }
        for bucket in plan.buckets
    ]
    text = f"{plural(len(sizes), 'size')} from {sizes[0][0]} to {sizes[-1][0]}"
    text += f", {plural(len(buckets), 'graph')}" if buckets else ""
    data = {"sizes": sizes, "buckets": buckets, "x": plan.dimension or "size", "y": "steps"}
    note = (
        "Each bracket is one graph: the sizes below it are padded to its right end."
        if buckets
        else ""
    )
    yield Figure("plan", titled("Sizes and graphs", plan.parameters), data, text, note)


def _of_difference(value: Difference) -> Iterator[Figure]:
    rows = [
        {
            "name": found.key,
            "value": max(-_MOST_PCT, min(found.change_pct, _MOST_PCT)),
            "text": f"{text} · {figure(found.before, found.unit).text} → "
            f"{figure(found.after, found.unit).text}",
            "tone": "dim" if found.beyond_spread is False else "plain",
        }
        for found in value.metrics
        # A share of a share misleads, and nothing has none.
        if found.unit != "%"
        and found.change_pct is not None
        and abs(found.change_pct) >= 1
        and (text := moved(found.before, found.after, found.unit))
    ]
    yield from _changes("Metrics that changed, in %", rows, "%", "Pale bars are within the spread.")
    kernels = [
        {
            "name": short_name(found.name),
            "full": found.name,
            "value": found.change_us,
            "text": f"{found.change_us:+,.1f} us · {count(found.before_count)} → "
            f"{count(found.after_count)} per step",
            "tone": "plain",
        }
        for found in value.kernels
    ]
    yield from _changes("Kernels that changed, in us per step", kernels, "us")


def _changes(
    heading: str, rows: list[dict[str, Any]], unit: str, note: str = ""
) -> Iterator[Figure]:
    rows = sorted(rows, key=lambda row: -abs(row["value"]))[:_MOST_BARS]
    yield from _of_rows("bars", heading, rows, "{name} {text}", note, unit=unit)


def _of_check(check: CheckResult) -> Iterator[Figure]:
    """How far each limited metric is from its baseline, and where its limit is."""
    rows: list[dict[str, Any]] = []
    for limit in check.limits:
        base, value = limit.baseline, limit.value
        if not base or value is None:
            continue

        def relative(given: float | None, base: float = base) -> float | None:
            if given is None:
                return None
            return max(-_MOST_PCT, min(100 * (given - base) / abs(base), _MOST_PCT))

        rows.append(
            {
                "name": limit.metric,
                "value": relative(value),
                "low": relative(limit.low),
                "high": relative(limit.high),
                "mark": relative(limit.bound),
                "text": f"{change(base, value) or '0 %'} · {limit.outcome.replace('_', ' ')}",
                "tone": {"failed": "bad", "passed": "plain"}.get(limit.outcome, "dim"),
            }
        )
    note = "The tick is the limit; the whisker is the range of this measurement."
    heading = "Change from the baseline, in %"
    yield from _of_rows("bars", heading, rows, "{name} {text}", note, unit="%")


_LEAST_HEAT = 3  # ranks
_LEAST_SPREAD = 0.05  # of the largest value: differences below are noise, and stay pale
_MOST_STACKED = 32  # ranks; above that, the heat map alone shows them
_PHASES = {
    "own_ms": "own time",
    "exposed_communication_ms": "waiting in collectives",
    "busy_ms": "GPU busy",
    "waited_for_ms": "others waited for it",
}


def _of_ranks(ranks: Ranks) -> Iterator[Figure]:
    if ranks.kind == "ranks":
        yield from _heat(ranks)
        yield from _timelines_of_ranks(ranks)
    if len(ranks.rows) <= _MOST_STACKED:
        yield from _iterations_of_ranks(ranks)


def _heat(ranks: Ranks) -> Iterator[Figure]:
    """Ranks by phase: the palest cell of a phase is its least value, the darkest its largest."""
    rows: list[dict[str, Any]] = []
    for key, name in _PHASES.items():
        values: list[float | None] = [getattr(row, key) for row in ranks.rows]
        known = [value for value in values if value is not None]
        if len(known) < _LEAST_HEAT or not max(known):
            continue
        low = min(known)
        span = max(max(known) - low, _LEAST_SPREAD * max(known))
        cells = [None if v is None else [(v - low) / span, ms(v)] for v in values]
        rows.append({"name": name, "cells": cells, "low": ms(low), "high": ms(max(known))})
    names = list(map(_rank, ranks.rows))
    yield from _of_rows("heat", "Ranks by phase", rows, "{name} {low} to {high}", names=names)


def _iterations_of_ranks(ranks: Ranks) -> Iterator[Figure]:
    rows: list[dict[str, Any]] = []
    for row in ranks.rows:
        if not row.iteration_ms:
            continue
        exposed = row.exposed_communication_ms
        own = row.own_ms if row.own_ms is not None else row.iteration_ms - (exposed or 0.0)
        parts = [("busy", "own time", own), ("sync", "waiting in collectives", exposed)]
        total = ms(row.iteration_ms)
        rows.append({"name": _rank(row), "parts": _parts(parts), "total": total})
    if len(rows) > 1:
        heading = f"An iteration of each {'rank' if ranks.kind == 'ranks' else 'file'}"
        yield from _of_rows("stack", heading, rows, "{name} {total}", unit="ms")


def _rank(row: RankRow) -> str:
    return row.name if row.rank is None else f"rank {row.rank}"
