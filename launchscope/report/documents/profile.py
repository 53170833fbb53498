"""The report of a Profile: verdict, reasons, times, costs, changes, kernels."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from launchscope.gate.metrics import label
from launchscope.model import Correctness, Metric, Profile
from launchscope.reason_text import as_written, step_summary
from launchscope.report import frames
from launchscope.report.document import (
    EMPTY,
    Bar,
    Bars,
    Cell,
    Column,
    Document,
    Entries,
    Paragraph,
    Section,
    Table,
    code,
    items,
    measured,
    notes,
    sections,
    sortable,
    words,
)
from launchscope.report.documents.labels import (
    CAUSES,
    answer,
    command,
    kernel,
    machine,
    periodic_work,
)
from launchscope.report.documents.next_step import findings, reason_of, to_do, what_to_do
from launchscope.report.documents.ranks import rank_sections
from launchscope.wording import (
    count,
    decimals,
    figures,
    first_shapes,
    installed,
    ms,
    pct,
    place,
    plural,
    sentence,
    times,
    us,
    with_unit,
)

_BASES = {
    "measured": "replay measured",
    "what_if": "replay measured with the blocking lines skipped",
    "predicted": "replay predicted from the trace",
    "structural": "no replay measured or predicted",
}
_UNVERIFIED = {"different": "result differs from eager", "not_checked": "result not checked"}
# The parts of an iteration in which the GPU computes nothing: tone, words, and metric.
_LAUNCHES = (("launch", "GPU idle, waiting for launches", "launch_overhead_ms"),)
_LAUNCHES_SPLIT = (
    ("framework", CAUSES["framework"], "framework_ms"),
    ("launch_call", CAUSES["launch_call"], "launch_call_ms"),
)
_WAITS = (
    ("sync", CAUSES["sync"], "sync_wait_ms"),
    ("data", CAUSES["data"], "data_wait_ms"),
    ("setup", CAUSES["setup"], "setup_ms"),
    ("dispatch", CAUSES["dispatch"], "dispatch_gap_ms"),
    ("unattributed", CAUSES["unattributed"], "unattributed_ms"),
)
# Smaller parts of the iteration are not listed.
_SMALLEST_PART = 0.005
_NO_SPEEDUP = Cell("", "strong")
# On a screen.
_MOST_ROWS, _MOST_RANKS, _MOST_DOUBTS, _MOST_NOTES = 6, 8, 2, 3


def document(profile: Profile, top: int, *, brief: bool = False) -> Document:
    """Everything a report shows of a Profile, with its `top` kernels. A `brief` one is not to be
    shown whole: it lacks the tables that need pandas, whose import takes longer than all else."""
    details: tuple[Section, ...] = (Section("Details", (Paragraph(""),), is_detail=True),)
    if not brief:
        details = (*_overhead(profile, top), _kernels(profile, top))
    found, (steps, fixes) = findings(profile), to_do(profile)
    periodic = map(periodic_work, profile.between.periodic if profile.between else ())
    why, change, keep_in_mind = (Section(name, (Entries(found[name]),)) for name in found)
    badge, tone = answer(profile)
    return Document(
        badge=badge.upper(),
        tone=tone,
        title=command(profile.target),
        headline=_headline(profile),
        basis=_basis(profile),
        context=_context(profile),
        sections=sections(
            what_to_do(profile, steps, fixes),
            replace(why, is_detail=True),
            _times(profile),
            _iteration(profile),
            *_of_ranks(profile),
            _devices(profile),
            replace(items("Between steps, not in every iteration", periodic), is_detail=True),
            *((replace(change, is_detail=True),) if steps else ()),
            replace(keep_in_mind, most=_MOST_DOUBTS),
            *details,
            _figures(profile),
            replace(notes(profile.notes), most=_MOST_NOTES),
        ),
    )


def _of_ranks(profile: Profile) -> tuple[Section, ...]:
    """The ranks side by side; none of a run of one."""
    ranks = profile.ranks
    if ranks is None:
        return ()
    tables = rank_sections(ranks)
    blocks = (Paragraph(ranks.headline), *tables[0].blocks)
    return (
        replace(tables[0], blocks=blocks, most=_MOST_RANKS),
        *(replace(table, is_detail=True) for table in tables[1:]),
        replace(items("Notes on the ranks", map(sentence, ranks.notes)), most=_MOST_NOTES),
    )


def _headline(profile: Profile) -> str:
    """The verdict, and its reason where that is another one."""
    if profile.verdict is None:
        return "The rules were not applied."
    reason = reason_of(profile)
    return profile.verdict.headline + (f" {sentence(reason.title)}" if reason else "")


def _basis(profile: Profile) -> str:
    verdict = profile.verdict
    if verdict is None:
        return ""
    parts = ["no times" if profile.mode == "rehearsal" else _BASES[verdict.basis]]
    if profile.iteration_source == "measured":
        parts[0] += " in the loop"
    elif profile.iteration_source == "subtracted":
        parts[0] += ", iteration by subtraction"
    if profile.replay.status == "measured":
        parts.append(_correctness(profile.replay.correct))
    return " · ".join((*parts, f"{verdict.confidence} confidence"))


def _correctness(correct: Correctness) -> str:
    if correct.status != "verified":
        return _UNVERIFIED[correct.status]
    over, largest = f"over {plural(correct.steps, 'batch')}", correct.max_update_diff
    if largest == 0:
        return f"bit-identical to eager {over}"
    by = "" if largest is None else f" (largest difference {largest:.0e})"
    return f"same result as eager {over}{by}"


def _context(profile: Profile) -> tuple[str, ...]:
    step = profile.step
    if step is None:
        return (machine(profile.environment),)
    parts = [step_summary(step)]
    if step.source:
        parts.append(f"step at {place(step.source)}")
    timed = profile.metrics.get("iteration_ms")
    if timed is not None and timed.samples and not is_total(profile):
        in_windows = profile.iteration_source == "measured"
        parts.append(plural(len(timed.samples), "window" if in_windows else "iteration"))
    return machine(profile.environment), " · ".join(parts)


class Row(Struct, frozen=True):
    label: str
    eager: Cell | str
    replay: Cell | str = ""
    speedup: float | None = None


def _times(profile: Profile) -> Section:
    """Eager and replay side by side, as far as there is a replay."""
    if profile.mode == "rehearsal":
        return Section("Measurements", ())
    rows = [*_durations(profile), *_launching(profile)]
    is_compared = any(row.replay or row.speedup is not None for row in rows)
    table = Table.of(
        rows,
        words("", "label", key=True, fit="wrap"),
        Column("eager" if is_compared else "", "eager"),
        Column(_replay_heading(profile), "replay"),
        Column(
            "speedup", "speedup", lambda ratio: Cell(times(ratio), "strong"), missing=_NO_SPEEDUP
        ),
    )
    return Section("Eager and replay" if is_compared else "Measurements", (table,), most=_MOST_ROWS)


def _replay_heading(profile: Profile) -> str:
    """`replay with .item() skipped`."""
    basis = profile.verdict.basis if profile.verdict is not None else ""
    if basis == "what_if":
        names = {as_written(blocker.op) for blocker in profile.blockers}
        return f"replay with {names.pop() if len(names) == 1 else 'blocking lines'} skipped"
    return "replay (predicted)" if basis == "predicted" else "replay"


def _metric(profile: Profile, key: str) -> Cell:
    return measured(profile.metrics.get(key))


def _share(profile: Profile, key: str, whole: str) -> Cell:
    cell, total = _metric(profile, key), "span" if is_total(profile) else whole
    return cell if profile.value(key) is None else Cell(f"{cell.text} of {total}")


def is_total(profile: Profile) -> bool:
    """Whether figures are totals over a trace in which no step was found, or asked for."""
    return profile.step is not None and profile.step.boundary == "none"


def _is_predicted(profile: Profile) -> bool:
    return profile.verdict is not None and profile.verdict.basis == "predicted"


def _is_part(profile: Profile) -> bool:
    """Whether what was replayed is a part of the step: a row of its own holds its times."""
    replay, step = profile.replay, profile.step
    was_measured = replay.status in ("measured", "what_if")
    return was_measured and step is not None and replay.scope not in (None, step.scope)


def _is_replayed(profile: Profile) -> bool:
    """Whether the replay of the step has been measured and counts."""
    has_replay = profile.value("replay_ms") is not None
    return has_replay and not _is_predicted(profile) and not _is_part(profile)


def _durations(profile: Profile) -> list[Row]:
    verdict, rows = profile.verdict, []
    if not is_total(profile):
        row = Row("step", _metric(profile, "step_ms"))
        if not _is_part(profile):
            key = "replay_ms" if _is_replayed(profile) else "predicted_replay_ms"
            speedup = verdict.speedup if verdict is not None else profile.value("speedup")
            row = replace(row, replay=_metric(profile, key), speedup=speedup)
        rows.append(row)
        if profile.value("step_p95_ms") is not None:
            rows.append(Row("step, 95th percentile", _metric(profile, "step_p95_ms")))
    for scope in profile.replay.scopes:
        if (eager := scope.eager_ms) and (replay := scope.replay_ms):
            part = f"{scope.scope.replace('_', ' and ')} alone"
            rows.append(Row(part, ms(eager), ms(replay), eager / replay))
    for shape in (*profile.replay.shapes, *profile.replay.padded):
        what = "padded to" if shape in profile.replay.padded else "with inputs"
        inputs = f"step {what} {first_shapes(shape.inputs)}"
        ratio = shape.eager_ms / shape.replay_ms if shape.replay_ms else None
        rows.append(Row(inputs, ms(shape.eager_ms), ms(shape.replay_ms), ratio))
    whole = Row(
        "whole span" if is_total(profile) else "iteration",
        _metric(profile, "iteration_ms"),
        _metric(profile, "replayed_iteration_ms"),
        profile.value("iteration_speedup"),
    )
    return [*rows, whole]


def _launching(profile: Profile) -> list[Row]:
    of, per = ("", "") if is_total(profile) else (" in the step", " per step")
    by_shape = profile.replay.shapes or profile.replay.padded
    launches = "1" if _is_replayed(profile) and not by_shape else ""
    return [
        Row(f"launches{per}", _metric(profile, "launches_per_step"), launches),
        Row(f"GPU busy{of}", _metric(profile, "gpu_busy_ms")),
        Row("GPU idle, waiting for launches", _share(profile, "launch_overhead_pct", "iteration")),
    ]


def _figures(profile: Profile) -> Section:
    """Everything that was measured, by the names that limits and JSON know."""
    known = [(key, m) for key, m in profile.metrics.items() if m.value is not None]
    rows = [{"label": label(key), "metric": metric} for key, metric in known]
    table = Table.of(
        rows,
        words("", "label", fit="wrap"),
        Column("", "metric", measured),
        Column("bounds", "metric", _bounds, missing=EMPTY),
    )
    if profile.mode == "rehearsal":
        return Section("Measurements", (table,))
    whose = " of the whole span" if is_total(profile) else ""
    return Section(f"All figures{whose}", (table,), is_detail=True)


def _bounds(metric: Metric) -> str | None:
    if metric.low is None or metric.high is None:
        return None
    return f"{figures(metric.low)} to {figures(metric.high)} {metric.unit}"


def _iteration(profile: Profile) -> Section:
    """Where the iteration goes; empty unless busy time and iteration are known."""
    iteration = profile.value("iteration_ms")
    if not iteration or profile.value("iteration_busy_ms") is None:
        return Section("", ())
    total = with_unit(profile.metrics["iteration_ms"], spread=False)
    whose = "time of the whole span" if is_total(profile) else "iteration time"
    heading = f"Where the {whose} goes ({total})"
    if stretched := stretched_trace(profile):
        return Section(heading, (Paragraph(stretched),))
    places = max(0, decimals(iteration, 3))
    bars = []
    for tone, part, value in iteration_parts(profile):
        if value is None:
            bars.append(Bar(part, with_unit(None), None))
        elif value >= _SMALLEST_PART * iteration or tone == "busy":
            bars.append(Bar(part, f"{value:,.{places}f} ms", 100.0 * value / iteration))
    return Section(heading, (Bars(tuple(bars)),))


def iteration_parts(
    profile: Profile, *, split: bool = False
) -> Iterator[tuple[str, str, float | None]]:
    """Tone, words and milliseconds of each part; the wait for launches as one, or `split`."""
    busy, alone = profile.value("iteration_busy_ms") or 0.0, exposed_ms(profile)
    yield "busy", "GPU computing" if alone else "GPU busy", max(busy - alone, 0.0)
    if alone:
        yield "copy", "collectives alone", alone
    for tone, part, key in (*(_LAUNCHES_SPLIT if split else _LAUNCHES), *_WAITS):
        yield tone, part, profile.value(key)


def exposed_ms(profile: Profile) -> float:
    """The time of an iteration in which the GPU runs nothing but collectives; 0 if too little to
    show."""
    alone = profile.value("exposed_communication_ms") or 0.0
    return alone if alone >= _SMALLEST_PART * (profile.value("iteration_ms") or 0.0) else 0.0


def stretched_trace(profile: Profile) -> str:
    """Why the parts of the traced iteration are not those of the timed one; empty if they are."""
    facts, iteration = profile.facts, profile.value("iteration_ms")
    excess = facts.busy_exceeds_interval_pct or facts.waits_exceed_idle_pct
    if not excess or not iteration:
        return ""
    ratio = 1 + excess / 100
    return (
        "Not known, because the traced steps are slower than the timed ones: in a traced "
        f"iteration, the GPU works and waits for {ms(ratio * iteration)} or more, {times(ratio)} "
        "the timed iteration. Another process on the GPU can cause this."
    )


def _devices(profile: Profile) -> Section:
    """All GPUs and processes of a file that has several; empty otherwise."""
    table = Table.of(
        profile.devices if len(profile.devices) > 1 else (),
        Column("GPU", "device", key=True),
        Column("process", "process", key=True),
        Column("launches", "launches", count),
        Column("kernels", "kernels", count),
        Column("busy", "busy_ms", ms),
        Column("idle", "idle_ms", ms),
        words("", "in_figures", lambda is_in: "in the figures above" if is_in else ""),
    )
    return Section("GPUs and processes, over the whole trace", (table,), is_detail=True)


def _overhead(profile: Profile, top: int) -> Iterator[Section]:
    """By what launched the work of the traced steps."""
    per_step = "" if is_total(profile) else " per step"
    for title, noun, rows in (
        ("GPU idle, waiting for launches, by line", "line", profile.overhead_by_line),
        ("GPU idle, waiting for launches, by module", "module", profile.overhead_by_module),
        ("Launches by operator", "operator", profile.launches_by_operator),
    ):
        table = Table.of(
            frames.overhead(rows),
            code(noun, ("name", "part"), _part, key=True, fit="cut_start"),
            Column(f"launches{per_step}", "launches", count),
            Column("GPU idle", "idle_ms", ms, missing=EMPTY),
            Column("share", "share_pct", pct, missing=EMPTY),
            top=top,
        )
        if table.rows:
            yield Section(title, (table,), is_detail=True)


def _part(name: str, part: str) -> str:
    return installed(name) if part == "known" else f"({part.replace('_', ' ')})"


def _kernels(profile: Profile, top: int) -> Section:
    table = Table.of(
        frames.kernels(profile),
        Column("count", "count", sortable(count)),
        Column("time", "total_us", sortable(us)),
        Column("share", "share_pct", pct, missing=EMPTY),
        code("line", "where", installed, fit="cut_start", missing=EMPTY),
        code("kernel", "name", sortable(kernel), key=True, fit="cut"),
        top=top,
    )
    of = "the whole span" if is_total(profile) else "a step"
    return Section(f"Top kernels of {of}", (table,), is_detail=True)
