"""CSV: one row per metric of a Profile, or per limit and change of a Check."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

from launchscope.model import Check, Profile
from launchscope.report.reporter import RenderOptions, Reporter

_METRICS = ("metric", "value", "unit", "exact", "iqr", "samples")
_CHECKED = ("kind", "name", "limit", "baseline", "value", "unit", "outcome", "reason", "where")


def render_profile(profile: Profile, options: RenderOptions) -> str:
    """Every metric with its unit, unrounded; an empty cell where it was not measured."""
    return _table(
        _METRICS,
        (
            (name, metric.value, metric.unit, metric.exact, metric.iqr, len(metric.samples))
            for name, metric in profile.metrics.items()
        ),
    )


def render_check(check: Check, options: RenderOptions) -> str:
    """Limits, then changes, whose kind is kernel, op or blocker and whose unit is 1 per step."""
    limits = (
        ("limit", d.metric, d.limit, d.baseline, d.value, d.unit, d.outcome, d.reason, check.source)
        for d in check.limits
    )
    changes = (
        (c.kind, c.name, None, c.before, c.after, "1", "appeared" if c.appeared else "disappeared",
         None, "; ".join(map(str, c.where)))
        for c in check.changes
    )  # fmt: skip
    return _table(_CHECKED, (*limits, *changes))


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return stream.getvalue()


REPORTER = Reporter("csv", (".csv",), {Check: render_check, Profile: render_profile})
