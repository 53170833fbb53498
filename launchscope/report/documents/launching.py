"""How the work of the traced steps was launched, and by what: the part of a Profile's report for
those who look closer."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Extreme, OverheadRow, Profile
from launchscope.report import frames
from launchscope.report.document import (
    EMPTY,
    Cell,
    Column,
    Paragraph,
    Section,
    Table,
    code,
    facts,
    words,
)
from launchscope.report.documents.labels import kernel
from launchscope.wording import count, figures, installed, ms, pct, us

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


def part_name(noun: str, part: str) -> str:
    """The name of what has no line, module or operator of its own; empty for others."""
    parts = {
        "others": f"other {noun}s", "between_steps": "between steps", "unknown": f"no known {noun}"
    }  # fmt: skip
    return parts.get(part, "")


def _overhead(noun: str, rows: Sequence[OverheadRow], top: int, per_step: str) -> Table:
    def name(name: str, part: str) -> str:
        other = part_name(noun, part)
        return f"({other})" if other else installed(name)

    return Table.of(
        frames.overhead(rows),
        code(noun, ("name", "part"), name, key=True, fit="cut_start"),
        Column(f"launches{per_step}", "launches", count),
        Column("GPU idle", "idle_ms", ms, missing=EMPTY),
        Column("share", "share_pct", pct, missing=EMPTY),
        top=top,
    )


def _durations(profile: Profile, per_step: str) -> Section:
    found = profile.histograms
    if found is None:
        return Section("", ())
    named = {
        "launch call": found.launch_call,
        "launch call to kernel start": found.launch_delay,
        "launch return to kernel start": found.queue_delay,
        "kernel": found.kernel,
    }
    rows = [
        {
            "name": name,
            "median_us": histogram.median_us,
            "p95_us": histogram.p95_us,
            "outliers": histogram.outliers,
            "longest": histogram.largest[0] if histogram.largest else None,
        }
        for name, histogram in named.items()
        if histogram is not None
    ]
    table = Table.of(
        rows,
        words("", "name", key=True, fit="wrap"),
        Column("median", "median_us", us),
        Column("95th percentile", "p95_us", us),
        Column("outliers", "outliers", count),
        Column("longest", "longest", _duration, missing=EMPTY),
        code("which", "longest", _name, fit="cut", missing=EMPTY),
    )
    short: tuple[tuple[str, str], ...] = ()
    if found.short_kernels is not None and found.short_kernels_pct is not None:
        share = pct(found.short_kernels_pct)
        number = f"{count(found.short_kernels)}{per_step}"
        text = f"{number} ({share} of those with a call of their own)"
        short = (("kernels shorter than their launch call", text),)
    return Section("Launches and kernels", (table, facts(short)), is_detail=True)


def _duration(extreme: Extreme) -> str:
    return us(extreme.us)


def _name(extreme: Extreme) -> Cell:
    return kernel(extreme.name)


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
    table = Table.of(
        rows if len(rows) > 1 else (),
        Column("stream", "stream", key=True),
        Column(f"launches{per_step}", "launches", count),
        Column("kernels, copies and sets", "activities", count),
        Column("busy", "busy_ms", ms),
    )
    return Section("Streams", (table,), is_detail=True)
