"""The report of a Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from launchscope.model import Watch
from launchscope.report.document import Bar, Bars, Commands, Document, Section
from launchscope.report.documents.labels import command, machine
from launchscope.wording import duration, figures, pct, plural

WAITS = {"launch_overhead_ms": "launches", "data_wait_ms": "data", "sync_wait_ms": "syncs"}


def document(value: Watch, top: int) -> Document:
    """Everything a report shows of a Watch."""
    module = "-m " * (value.target.kind == "module")
    again = Commands((f"launchscope profile {module}{command(value.target)}",))
    pays = value.share_pct() >= value.threshold_pct
    cost = pct(100 * value.cost_s / max(value.seconds, 1e-9))
    bars = Bars(tuple(_bar(value, key) for key in WAITS))
    return Document(
        badge=f"{pct(value.share_pct())} WAITS FOR LAUNCHES",
        tone="caution" if pays else "calm",
        title=command(value.target),
        headline=headline(value),
        basis=f"{plural(len(value.windows), 'window')} · watching cost {cost}",
        context=(machine(value.environment),),
        sections=(Section("What the GPU waited for", (bars,)), *[Section("Next", (again,))] * pays),
    )


def headline(value: Watch) -> str:
    share, run = value.share_pct(), f"{duration(value.seconds)}, {plural(value.steps, 'step')}"
    lost = f"{figures(share / 100 * value.seconds / 3600, 2)} GPU hours lost"
    return f"{run}: {pct(share)} of GPU time waited for launches, {lost}."


def _bar(value: Watch, key: str) -> Bar:
    share, hours = value.share_pct(key), value.share_pct(key) / 100 * value.seconds / 3600
    shares = [100 * one.get(key, 0.0) / (one.get("iteration_ms") or 1.0) for one in value.windows]
    spread = f"{pct(min(shares, default=0.0))} to {pct(max(shares, default=0.0))} in windows"
    return Bar(WAITS[key], f"{figures(hours, 2)} h, {spread}", share)
