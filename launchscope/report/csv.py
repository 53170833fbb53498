"""CSV: one row per metric of a Profile, or per limit and change of a CheckResult."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO

from launchscope.model import CheckResult, Profile
from launchscope.report import RenderOptions, Reporter

_METRICS = ("metric", "value", "unit", "exact", "iqr", "samples")
_CHECKED = ("kind", "name", "limit", "baseline", "value", "unit", "outcome", "reason", "where")
# At the beginning of a cell, or of what would be one where semicolons separate cells.
_FORMULA = re.compile(r"(^|;)(?=[\s\"]*[-=+@\t\r＝＋－＠])")


def render_profile(profile: Profile, options: RenderOptions) -> str:
    """Every metric with its unit, unrounded; an empty cell where it was not measured."""
    metrics = profile.metrics.items()
    rows = ((key, m.value, m.unit, m.exact, m.iqr, len(m.samples)) for key, m in metrics)
    return _table(_METRICS, rows)


def render_check(check: CheckResult, options: RenderOptions) -> str:
    """Limits, then changes, whose kind is kernel, op, blocker or work and whose unit is 1 per
    step."""
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
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: object) -> object:
    """A text with an apostrophe before what a spreadsheet would take for a formula."""
    is_text = value is not None and not isinstance(value, int | float)
    return _FORMULA.sub(r"\1'", str(value)) if is_text else value


REPORTER = Reporter("csv", (".csv",), {CheckResult: render_check, Profile: render_profile})
