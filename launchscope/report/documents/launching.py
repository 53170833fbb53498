"""How the work of the traced steps was launched, and by what: the part of a Profile's report for
those who look closer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from launchscope.model import Histogram, OverheadRow, Profile
from launchscope.report.document import Cell, Column, Paragraph, Section, Table, facts
from launchscope.report.documents.labels import kernel
from launchscope.wording import count, figures, installed, ms, pct

_IDLE = (
    "GPU idle is the time that the GPU waits for the host. It is counted for the launch that ends "
    "the wait."
)
_BACKWARD = (
    "Launches of the backward count for the part of the forward that they belong to, where the "
    "trace shows it."
)


def launching(profile: Profile, top: int, *, is_total: bool) -> tuple[Section, ...]:
    """Empty sections for what is not known. `is_total`: figures are of a whole span."""
    per_step = "" if is_total else " per step"
    tables = (
        ("Overhead by line", "line", profile.overhead_by_line),
        ("Overhead by module", "module", profile.overhead_by_module),
        ("Launches by operator", "operator", profile.launches_by_operator),
    )
    shown: list[Section] = []
    for title, noun, rows in tables:
        if rows:
            meaning = _IDLE if noun == "operator" else f"{_IDLE} {_BACKWARD}"
            explained = () if shown else (Paragraph(meaning, "dim"),)
            blocks = (_overhead(noun, rows, top, per_step), *explained)
            shown.append(Section(title, blocks, is_detail=True))
    return (
        *shown,
        _durations(profile, per_step),
        _queue(profile, "span" if is_total else "step"),
        _streams(profile, per_step),
    )


def name_of(noun: str, row: OverheadRow) -> str:
    """What a row is of, as people read it; `noun` is line, module or operator."""
    part = part_name(noun, row)
    return f"({part})" if part else installed(row.name)


def part_name(noun: str, row: OverheadRow) -> str:
    """The name of a row without a line, module or operator of its own; empty for others."""
    parts = {
        "others": f"other {noun}s", "between_steps": "between steps", "unknown": f"no known {noun}"
    }  # fmt: skip
    return parts.get(row.part, "")


def _overhead(noun: str, rows: Sequence[OverheadRow], top: int, per_step: str) -> Table:
    total = sum(row.idle_ms or 0.0 for row in rows)
    return Table.of(
        rows,
        (Column(noun, "left", key=True, fit="cut_start", code=True), partial(name_of, noun)),
        (Column(f"launches{per_step}"), lambda row: count(row.launches)),
        (Column("GPU idle"), lambda row: "" if row.idle_ms is None else ms(row.idle_ms)),
        (Column("share"), lambda row: pct(100 * (row.idle_ms or 0.0) / total) if total else ""),
        top=top,
    )


def _durations(profile: Profile, per_step: str) -> Section:
    found = profile.histograms
    if found is None:
        return Section("", ())
    named: list[tuple[str, Histogram | None]] = [
        ("launch call", found.launch_call),
        ("launch call to kernel start", found.launch_delay),
        ("launch return to kernel start", found.queue_delay),
        ("kernel", found.kernel),
    ]
    known = [(name, histogram) for name, histogram in named if histogram is not None]
    table = Table.of(
        known,
        (Column("", "left", key=True, fit="wrap"), lambda row: row[0]),
        (Column("median"), lambda row: f"{figures(row[1].median_us)} us"),
        (Column("95th percentile"), lambda row: f"{figures(row[1].p95_us)} us"),
        (Column("outliers"), lambda row: count(row[1].outliers)),
        (Column("longest"), lambda row: _longest(row[1])),
        (Column("which", "left", fit="cut", code=True), lambda row: _longest_name(row[1])),
    )
    short: tuple[tuple[str, str], ...] = ()
    if found.short_kernels is not None and found.short_kernels_pct is not None:
        share = pct(found.short_kernels_pct)
        number = f"{count(found.short_kernels)}{per_step}"
        text = f"{number} ({share} of those with a call of their own)"
        short = (("kernels shorter than their launch call", text),)
    return Section("Launches and kernels", (table, facts(short)), is_detail=True)


def _longest(histogram: Histogram) -> str:
    return f"{figures(histogram.largest[0].us)} us" if histogram.largest else ""


def _longest_name(histogram: Histogram) -> Cell | str:
    return kernel(histogram.largest[0].name) if histogram.largest else ""


def _queue(profile: Profile, what: str) -> Section:
    queue = profile.queue_depth
    if queue is None:
        return Section("", ())
    rows = (("maximum", count(queue.maximum)), ("mean over time", figures(queue.mean)))
    title = f"Queue depth: launched and not finished, over a traced {what} ({ms(queue.ms)})"
    return Section(title, (facts(rows),), is_detail=True)


def _streams(profile: Profile, per_step: str) -> Section:
    """Empty for a single stream: other figures show all of it."""
    rows = profile.streams or ()
    if len(rows) < 2:
        return Section("", ())
    table = Table.of(
        rows,
        (Column("stream", key=True), lambda row: str(row.stream)),
        (Column(f"launches{per_step}"), lambda row: count(row.launches)),
        (Column("kernels, copies and sets"), lambda row: count(row.activities)),
        (Column("busy"), lambda row: ms(row.busy_ms)),
    )
    return Section("Streams", (table,), is_detail=True)
