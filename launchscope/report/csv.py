"""CSV: the metrics of a Profile, the rows of a comparison, or the limits and changes of a check."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launchscope.model import CheckResult, Comparison, Difference, Profile, Ranks
from launchscope.report import RenderOptions, Reporter, frames

if TYPE_CHECKING:
    import pandas as pd

_CHECKED = ("kind", "name", "limit", "baseline", "value", "unit", "outcome", "reason", "where")
# At the beginning of a cell, or of what would be one where semicolons separate cells.
_FORMULA = re.compile(r"(^|;)(?=[\s\"]*[-=+@\t\r＝＋－＠])")


def render(value: Profile | Comparison | Ranks | Difference, options: RenderOptions) -> str:
    """The first table of the value, unrounded; an empty cell where nothing was measured."""
    return _written(next(iter(frames.tables(value).values())))


def render_check(check: CheckResult, options: RenderOptions) -> str:
    """Limits, then changes, whose kind is kernel, op, blocker or work and whose unit is 1 per
    step."""
    step = None if check.source is None else str(check.source)
    limits = [
        ("limit", d.metric, d.limit, d.baseline, d.value, d.unit, d.outcome, d.reason, step)
        for d in check.limits
    ]
    changes = [
        (c.kind, c.name, None, c.before, c.after, "1", "appeared" if c.appeared else "disappeared",
         None, "; ".join(map(str, c.where)))
        for c in check.changes
    ]  # fmt: skip
    rows = [*limits, *changes]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(_CHECKED)}
    return _written(frames.frame(columns))


def _written(table: pd.DataFrame) -> str:
    cells = {str(_cell(name)): [_cell(value) for value in column] for name, column in table.items()}
    return frames.frame(cells).to_csv(index=False, lineterminator="\n")


def _cell(value: object) -> object:
    """A text with an apostrophe before what a spreadsheet would take for a formula."""
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


_SHOWN = (Profile, Comparison, Difference, Ranks)
REPORTER = Reporter("csv", (".csv",), {CheckResult: render_check, **dict.fromkeys(_SHOWN, render)})
