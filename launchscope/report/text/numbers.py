"""Numbers for tables: as many figures as the spread allows, "not measured" for None.

A median is written to the decimal place of its interquartile range, which is itself written
to one figure (two where the median needs them), and to three figures at least: 9.0137 with an
IQR of 0.042 is "9.01 ± 0.04".
"""

from __future__ import annotations

from math import floor, log10

from launchscope.model import Metric
from launchscope.rules import wording

NOT_MEASURED = "not measured"
_MOST_FIGURES = 5
_SPREAD_FIGURES = 2
_FEWEST_FIGURES = 3  # a wide spread must not make 9.3 and 9.6 look like a whole unit apart


def number(metric: Metric | None, *, spread: bool = True) -> str:
    """A metric without its unit; ± is the interquartile range of its samples."""
    if metric is None or metric.value is None:
        return NOT_MEASURED
    value = float(metric.value)
    iqr = metric.iqr
    if metric.exact or (metric.unit in ("1", "steps") and value.is_integer()):
        return f"{value:,.0f}" if value.is_integer() else plain(value)
    if iqr is None or iqr <= 0 or value == 0:
        return plain(value)
    decimals = min(_decimals_of_spread(iqr), wording.decimals(value, _MOST_FIGURES))
    decimals = max(decimals, wording.decimals(value, _FEWEST_FIGURES))
    text = _fixed(value, decimals)
    coarse = min(decimals, max(0, wording.decimals(iqr, _SPREAD_FIGURES)))
    return f"{text} ± {_fixed(iqr, coarse)}" if spread and round(iqr, decimals) else text


def with_unit(metric: Metric | None, *, spread: bool = True) -> str:
    """A metric with its unit, as `9.01 ± 0.04 ms`."""
    text = number(metric, spread=spread)
    if metric is None or metric.value is None or metric.unit == "1":
        return text
    if metric.unit == "%":
        return percent(float(metric.value))
    if metric.unit == "MiB":
        return wording.mib(float(metric.value))
    return f"{text}x" if metric.unit == "x" else f"{text} {metric.unit}"


def plain(value: float | None, figures: int = 3) -> str:
    """A number without spread, to three figures (whole units at least)."""
    return NOT_MEASURED if value is None else wording.figures(value, figures)


def like(value: float, whole: float, figures: int = 3) -> str:
    """A part of `whole`, to the decimal place of the whole, so that a column of parts aligns."""
    return _fixed(value, max(0, wording.decimals(whole, figures)))


def milliseconds(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{plain(value)} ms"


def ratio(value: float | None) -> str:
    return NOT_MEASURED if value is None else wording.times(value)


def percent(value: float | None) -> str:
    return NOT_MEASURED if value is None else wording.pct(value)


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _decimals_of_spread(iqr: float) -> int:
    """The place of the first figure of the spread, after rounding: 0.096 is 0.1."""
    exponent = floor(log10(iqr))
    return -exponent if iqr / 10**exponent < 9.5 else -exponent - 1
