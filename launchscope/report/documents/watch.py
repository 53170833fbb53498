"""The report of a Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.model import Watch
from launchscope.report.document import Bar, Bars, Commands, Document, Paragraph, Section
from launchscope.report.documents.labels import command, machine
from launchscope.wording import duration, figures, pct, plural

WAITS = {
    "launch_overhead_ms": "launches",
    "data_wait_ms": "data",
    "sync_wait_ms": "synchronization",
}


def document(value: Watch, top: int) -> Document:
    """Everything a report shows of a Watch."""
    module = "-m " * (value.target.kind == "module")
    again = Commands((f"launchscope profile {module}{command(value.target)}",))
    pays = value.share_pct() >= value.threshold_pct
    cost = pct(100 * value.cost_s / max(value.seconds, 1e-9))
    waits = Section("What the GPU waited for", (Bars(tuple(_bars(value))), _windows(value)))
    return Document(
        badge=f"{pct(value.share_pct())} WAITS FOR LAUNCHES",
        tone="caution" if pays else "calm",
        title=command(value.target),
        headline=headline(value),
        basis=f"{plural(len(value.windows), 'window')} · watching cost {cost}",
        context=(machine(value.environment),),
        sections=(waits, *[Section("Next", (again,))] * pays),
    )


def headline(value: Watch) -> str:
    share, run = value.share_pct(), f"{duration(value.seconds)}, {plural(value.steps, 'step')}"
    lost = f"{figures(share / 100 * value.seconds / 3600, 2)} GPU hours lost"
    return f"{run}: the GPU waited for launches for {pct(share)} of the time, {lost}."


def _bars(value: Watch) -> Iterator[Bar]:
    for key, label in WAITS.items():
        share = value.share_pct(key)
        yield Bar(label, f"{figures(share / 100 * value.seconds / 3600, 2)} h", share)


def _windows(value: Watch) -> Paragraph:
    """How far the shares of the windows differ."""
    found = []
    for key, label in WAITS.items():
        shares = [100 * one[key] / one["iteration_ms"] for one in value.windows]
        found.append(f"{label} {pct(min(shares))} to {pct(max(shares))}")
    return Paragraph(f"In single windows: {', '.join(found)}.")
