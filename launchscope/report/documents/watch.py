"""The report of a Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from launchscope.model import Watch
from launchscope.report.document import Bar, Bars, Commands, Document, Paragraph, Section
from launchscope.report.documents.labels import command, machine
from launchscope.wording import duration, figures, pct, plural

WAITS = {"launch_overhead_ms": "launches", "data_wait_ms": "data", "sync_wait_ms": "synchronizing"}


def document(value: Watch, top: int) -> Document:
    """Everything a report shows of a Watch."""
    module = "-m " * (value.target.kind == "module")
    again = Commands((f"launchscope profile {module}{command(value.target)}",))
    pays = value.share_pct() >= value.threshold_pct
    cost = pct(100 * value.cost_s / max(value.seconds, 1e-9))
    shares = {key: [100 * getattr(w, key) / w.iteration_ms for w in value.windows] for key in WAITS}
    spread = ", ".join(f"{WAITS[k]} {pct(min(s))} to {pct(max(s))}" for k, s in shares.items())
    waited = [(label, value.share_pct(key)) for key, label in WAITS.items()]
    bars = [Bar(label, duration(share / 100 * value.seconds), share) for label, share in waited]
    shown = Bars(tuple(bars)), Paragraph(f"In single windows: {spread}.")
    return Document(
        badge=f"{pct(value.share_pct())} WAITS FOR LAUNCHES",
        tone="caution" if pays else "calm",
        title=command(value.target),
        headline=headline(value),
        basis=f"{plural(len(value.windows), 'window')} · watching cost {cost}",
        context=(machine(value.environment),),
        sections=(Section("What the GPU waited for", shown), *[Section("Next", (again,))] * pays),
    )


def headline(value: Watch) -> str:
    share, run = value.share_pct(), f"{duration(value.seconds)}, {plural(value.steps, 'step')}"
    lost = f"{figures(share / 100 * value.seconds / 3600, 2)} GPU hours lost"
    return f"{run}: the GPU waited for launches for {pct(share)} of the time, {lost}."
