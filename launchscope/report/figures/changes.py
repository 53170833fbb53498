"""Bars of what changed: between two Profiles, or from a baseline."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.model import CheckResult, Difference
from launchscope.report.documents.difference import figure, moved
from launchscope.report.figures.figure import Figure, Row, rows_figure
from launchscope.report.kernel_names import short_name
from launchscope.wording import change, count

_MOST_BARS = 15
_MOST_PCT = 1_000.0  # of a change that is drawn


def of_difference(value: Difference) -> Iterator[Figure]:
    rows = [
        {
            "name": found.key,
            "value": max(-_MOST_PCT, min(found.change_pct, _MOST_PCT)),
            "text": f"{text} · {figure(found.before, found.unit).text} → "
            f"{figure(found.after, found.unit).text}",
            "tone": "dim" if found.beyond_spread is False else "plain",
        }
        for found in value.metrics
        # A share of a share misleads, and nothing has none.
        if found.unit != "%"
        and found.change_pct is not None
        and abs(found.change_pct) >= 1
        and (text := moved(found.before, found.after, found.unit))
    ]
    yield from _changes("Metrics that changed, in %", rows, "%", "Pale bars are within the spread.")
    kernels = [
        {
            "name": short_name(found.name),
            "full": found.name,
            "value": found.change_us,
            "text": f"{found.change_us:+,.1f} us · {count(found.before_count)} → "
            f"{count(found.after_count)} per step",
            "tone": "plain",
        }
        for found in value.kernels
    ]
    yield from _changes("Kernels that changed, in us per step", kernels, "us")


def _changes(heading: str, rows: list[Row], unit: str, note: str = "") -> Iterator[Figure]:
    rows = sorted(rows, key=lambda row: -abs(row["value"]))[:_MOST_BARS]
    yield from rows_figure("bars", heading, rows, "{name} {text}", note, unit=unit)


def of_check(check: CheckResult) -> Iterator[Figure]:
    """How far each limited metric is from its baseline, and where its limit is."""
    rows: list[Row] = []
    for limit in check.limits:
        base, value = limit.baseline, limit.value
        if not base or value is None:
            continue

        def relative(given: float | None, base: float = base) -> float | None:
            if given is None:
                return None
            return max(-_MOST_PCT, min(100 * (given - base) / abs(base), _MOST_PCT))

        rows.append(
            {
                "name": limit.metric,
                "value": relative(value),
                "low": relative(limit.low),
                "high": relative(limit.high),
                "mark": relative(limit.bound),
                "text": f"{change(base, value) or '0 %'} · {limit.outcome.replace('_', ' ')}",
                "tone": {"failed": "bad", "passed": "plain"}.get(limit.outcome, "dim"),
            }
        )
    note = "The tick is the limit; the whisker is the range of this measurement."
    heading = "Change from the baseline, in %"
    yield from rows_figure("bars", heading, rows, "{name} {text}", note, unit="%")
