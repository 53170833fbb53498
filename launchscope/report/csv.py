"""CSV: the metrics of a Profile, the rows of a comparison, or the limits of a check."""

from __future__ import annotations

import re

from launchscope.report import RenderOptions, Reporter, frames

# At the beginning of a cell, or of what would be one where semicolons separate cells.
_FORMULA = re.compile(r"(^|;)(?=[\s\"]*[-=+@\t\r＝＋－＠])")


def render(value: object, options: RenderOptions) -> str:
    """The first table of the value, unrounded; an empty cell where nothing was measured."""
    table = next(iter(frames.tables(value).values()))
    cells = {str(_cell(name)): [_cell(value) for value in column] for name, column in table.items()}
    return frames.frame(cells).to_csv(index=False, lineterminator="\n")


def _cell(value: object) -> object:
    """A text with an apostrophe before what a spreadsheet would take for a formula."""
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


REPORTER = Reporter("csv", (".csv",), dict.fromkeys(frames.TABLES, render))
