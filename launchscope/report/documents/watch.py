"""The report of a Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from launchscope.model import Watch
from launchscope.report.document import Bar, Bars, Commands, Document, Section
from launchscope.report.documents.labels import command, machine
from launchscope.wording import duration, figures, pct, plural

_CAUSES = {"launch": "launches", "data": "data loader", "sync": "synchronization"}


def document(value: Watch, top: int) -> Document:
    """Everything a report shows of a Watch."""
    share, script = value.share_pct("launch"), command(value.target)
    module = "-m " * (value.target.kind == "module")
    further = Section("Next", (Commands((f"launchscope profile {module}{script}",)),))
    pays = share >= value.threshold_pct
    bars = Bars(tuple(_bar(value, cause) for cause in _CAUSES))
    return Document(
        badge=f"{pct(share)} WAITS FOR LAUNCHES",
        tone="caution" if pays else "calm",
        title=script,
        headline=f"In {duration(value.seconds)} and {plural(value.steps, 'step')} the GPU waited "
        f"for launches for {pct(share)} of the time.",
        basis=f"{plural(len(value.windows), 'window')} · watching cost "
        f"{pct(100 * value.cost_s / max(value.seconds, 1e-9))}",
        context=(machine(value.environment),),
        sections=(Section("What the GPU waited for", (bars,)), *[further] * pays),
    )


def _bar(value: Watch, cause: str) -> Bar:
    shares = [100 * getattr(w, f"{cause}_ms") / w.iteration_ms for w in value.windows]
    low, high = min(shares, default=0.0), max(shares, default=0.0)
    hours = f"{figures(value.waited_s(cause) / 3600, 2)} GPU hours"
    return Bar(
        _CAUSES[cause], f"{hours}, {pct(low)} to {pct(high)} in windows", value.share_pct(cause)
    )
