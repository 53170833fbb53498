"""Limits: how they are written, and which are in force.

`900` is the worst value that passes; `+0`, `+5%`, `+2pp`, `+300us` say how much worse than the
baseline a value may be (`-5%` of a metric that is better when higher); `off` lifts a limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from launchscope.errors import ConfigError, UsageError
from launchscope.gate import metrics
from launchscope.model.gate import LimitSource

__all__ = ["Limit", "limits_from_config", "limits_from_flags", "limits_in_force"]

OFF = "off"
_FORM = re.compile(r"([+-]?)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(%|pp|ns|us|µs|ms|s|x|MiB)?")
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_EXAMPLES = "900, +0, +5%, +2pp or +300us"


@dataclass(frozen=True)
class Limit:
    """A limit on one metric. `amount` is in the metric's unit, or a share if `share`."""

    metric: str
    text: str
    source: LimitSource
    relative: bool
    amount: float
    share: bool = False

    def allowance(self, baseline: float) -> float:
        """How much worse than this value of the baseline is still within a relative limit."""
        amount = abs(baseline) * self.amount if self.share else self.amount
        return max(amount, metrics.floor_of(self.metric))


Limits = Mapping[str, Limit | None]  # None: lifted


def limits_from_flags(words: Sequence[str]) -> Limits:
    """Of `--limit METRIC=VALUE ...`; UsageError for what cannot be read or contradicts."""
    limits: dict[str, Limit | None] = {}
    texts: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(
                f"--limit: expected METRIC=VALUE, not {word!r}",
                hint="such as --limit launches_per_step=+0",
            )
        metric = metrics.known(name.strip(), UsageError, "--limit")
        text = value.strip()
        if metric in texts and texts[metric] != text:
            raise UsageError(
                f"--limit: {metric} has two limits, {texts[metric]} and {text}",
                hint="give one limit per metric",
            )
        texts[metric] = text
        limits[metric] = _read(metric, text, "flag", "--limit", UsageError)
    return limits


def limits_from_config(table: Mapping[str, Any], place: str) -> Limits:
    """Of a `limits` table of the settings file; ConfigError for what cannot be read."""
    limits: dict[str, Limit | None] = {}
    for name, value in table.items():
        metric = metrics.known(name, ConfigError, place)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ConfigError(
                f"{place}: {name}: expected a limit, not {value!r}", hint=f"such as {_EXAMPLES}"
            )
        limits[metric] = _read(metric, str(value).strip(), "config", place, ConfigError)
    return limits


def limits_in_force(flags: Limits, config: Limits, mode: str) -> tuple[Limit, ...]:
    """Flags before the settings file; the defaults where neither says anything for this mode.

    Without a GPU most metrics are not measured: a settings file that speaks only of those
    leaves the rehearsal's defaults in force.
    """
    chosen = {**config, **flags}
    defaults = metrics.DEFAULTS[mode]
    if not chosen or (mode == "rehearsal" and not flags and not chosen.keys() & defaults.keys()):
        extra = {
            metric: _read(metric, text, "default", "default", UsageError)
            for metric, text in defaults.items()
        }
        chosen = {**extra, **chosen}
    return tuple(limit for limit in chosen.values() if limit is not None)


def _read(
    metric: str, text: str, source: LimitSource, place: str, error: type[UsageError]
) -> Limit | None:
    if text.lower() == OFF:
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        raise error(
            f"{place}: {metric}: {text!r} is no limit", hint=f"limits look like {_EXAMPLES}"
        )
    sign, number, suffix = found[1], float(found[2]), found[3] or ""
    if isinf(number):
        raise error(
            f"{place}: {metric}: {text!r} is no limit: nothing is over it", hint="off lifts a limit"
        )
    own = metrics.UNITS[metric]
    if sign:
        _check_sign(metric, sign, number, text, place, error)
    if suffix == "%" and (sign or own != "%"):
        if not sign:
            raise error(
                f"{place}: {metric} is not a percentage: {text} has to be relative",
                hint=f"write +{text} for {text} more than the baseline",
            )
        return Limit(metric, text, source, True, number / 100.0, share=True)
    if suffix == "pp" and (own != "%" or not sign):
        raise error(
            f"{place}: {metric}: {text!r} is no limit: pp is how much a percentage may rise",
            hint=f"write +{number:g}pp" if own == "%" else f"limits look like {_EXAMPLES}",
        )
    amount = _in_unit(number, suffix, own)
    if amount is None:
        raise error(
            f"{place}: {metric} is measured in {'counts' if own == '1' else own}, "
            f"which {text!r} is not",
            hint=f"leave the unit out, or write it in {own}"
            if own != "1"
            else "leave out the unit",
        )
    return Limit(metric, text, source, bool(sign), amount)


def _check_sign(
    metric: str, sign: str, number: float, text: str, place: str, error: type[UsageError]
) -> None:
    """A relative limit allows a worsening: up, or down where higher is better."""
    wanted = "-" if metrics.higher_is_better(metric) else "+"
    if sign != wanted and number != 0:
        better = "higher" if wanted == "-" else "lower"
        raise error(
            f"{place}: {metric} is better when {better}, so {text} would demand an improvement",
            hint=f"write {wanted}{text[1:]} for how much worse it may be",
        )


def _in_unit(number: float, suffix: str, own: str) -> float | None:
    if suffix in ("", own) or (suffix == "pp" and own == "%"):
        return number
    if suffix in _NANOSECONDS and own in _NANOSECONDS:
        return number * _NANOSECONDS[suffix] / _NANOSECONDS[own]
    return None
