"""Limits: how they are written, and which are in force.

`900` is the worst value that passes; `+0` and `+5%` are how much more than in the baseline a count
may be; `off` removes a limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isinf
from typing import Annotated

from msgspec import Meta, Struct

from launchscope.config import convert
from launchscope.errors import ConfigError, UsageError
from launchscope.gate import metrics
from launchscope.model.recording import Mode

# In force beside those that are given, by the mode of the Profile: exact counts, which do not
# depend on how busy the machine is.
_TRACED = ("launches_per_step", "syncs_per_step", "memcpys_per_step")
_BETWEEN_TRACED = ("between_launches", "between_syncs", "between_copies")
_INSPECTED = ("device_ops_per_step", metrics.BLOCKERS, "graph_breaks", "shape_signatures")
_DEFAULTS = {
    "gpu": (*_TRACED, *_INSPECTED, *_BETWEEN_TRACED, "between_ops"),
    "rehearsal": (
        *_INSPECTED,
        "memcpys_per_step",
        "between_ops",
        "between_syncs",
        "between_copies",
    ),
    "trace": (*_TRACED, *_BETWEEN_TRACED),
}
_FORM = re.compile(r"(\+?)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(%|[a-zA-Z]*)")
_EXAMPLES = "900, +0, +5% or 9.5ms"
_Written = Annotated[int | float | str, Meta(description=f"a limit such as {_EXAMPLES}")]


class Limit(Struct, frozen=True):
    """A limit on one metric. `amount` is in the metric's unit, or a share if `share`."""

    metric: str
    text: str
    relative: bool
    amount: float
    share: bool = False

    def allowance(self, baseline: float) -> float:
        """How much more than this value of the baseline a relative limit allows."""
        return abs(baseline) * self.amount if self.share else self.amount


Limits = Mapping[str, Limit | None]  # None: removed


def limits_from_flags(words: Sequence[str]) -> Limits:
    """The limits of `--limit METRIC=VALUE ...`; the last one of a metric counts.
    UsageError for a wrong one."""
    limits: dict[str, Limit | None] = {}
    for word in words:
        name, _, text = (part.strip() for part in word.partition("="))
        if not name or not text:
            raise UsageError(
                f"--limit: expected METRIC=VALUE, not {word!r}",
                hint="such as --limit launches_per_step=+0",
            )
        limits[name] = _parsed(name, text, "--limit", UsageError)
    return limits


def limits_from_config(table: Mapping[str, object], place: str) -> Limits:
    """The limits of a table in the settings file; ConfigError for a wrong one."""
    return {
        name: _parsed(name, str(convert(raw, _Written, f"{place}: {name}")), place)
        for name, raw in table.items()
    }


def limits_in_force(
    flags: Limits, config: Limits, mode: Mode, *, with_baseline: bool = True
) -> tuple[Limit, ...]:
    """The defaults of the mode, which need a baseline, with the limits of the settings file and of
    the command line in their place or beside them."""
    names = _DEFAULTS[mode] if with_baseline else ()
    default = {name: _parsed(name, "+0", "") for name in names}
    chosen = {**default, **config, **flags}
    return tuple(limit for limit in chosen.values() if limit is not None)


def _parsed(
    metric: str, text: str, place: str, error: type[UsageError] = ConfigError
) -> Limit | None:
    """The limit that a text sets, None for `off`; `error` for anything else."""
    metrics.require_known(metric, error, place)
    if text.lower() == "off":
        return None

    def refused(problem: str, hint: str) -> UsageError:
        return error(f"{place}: {metric}{problem}", hint=hint)

    found = _FORM.fullmatch(text)
    if found is None or isinf(float(found[2])):
        raise refused(f": {text!r} is not a limit", f"limits look like {_EXAMPLES}, or off")
    relative, number, suffix = bool(found[1]), float(found[2]), found[3]
    unit = metrics.UNITS[metric]
    if relative and metrics.is_timed(metric):
        worst = "lowest" if metrics.higher_is_better(metric) else "highest"
        raise refused(
            f" differs from run to run, so no limit on it can be relative: {text}",
            f"write the {worst} value that passes, without a sign",
        )
    if suffix == "%" and relative:
        return Limit(metric, text, True, number / 100.0, share=True)
    if suffix not in ("", unit):
        measured = "counts" if unit == "1" else unit
        raise refused(f" is measured in {measured}, and {text!r} is not", "leave out the unit")
    return Limit(metric, text, relative, number)
