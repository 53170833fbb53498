"""How numbers, counts and lists are written, in sentences and in tables alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from launchscope.model import Metric, SourceLine, TensorShape

NOT_MEASURED = "not measured"
# Every report with a ± says this once.
SPREAD = "± is half of the interquartile range."
_MOST = 1000.0  # ratios and percentages beyond this are written as a bound
_MOST_FIGURES = 4
_FEWEST_FIGURES = 3  # a wide spread must not make 9.3 and 9.6 look like a whole unit apart
# A word, and not the name of a file, a process or an option.
_WORD = re.compile(r"[a-z]+(?=[ ,:;]|$)")
_ENDS = (".", "?", "!", ":")
_MOST_SHAPES = 3
_INSTALLED = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")


def figures(value: float, digits: int = 3) -> str:
    """`value` to so many significant figures, whole units at least: 9.014 -> "9.01". What is less
    than half a billionth is left over from rounding: "0"."""
    if abs(value) < 5e-10:
        return "0"
    return f"{value:,.{max(decimals(value, digits), 0)}f}"


def count(value: float) -> str:
    """A number of things, which is a mean where it is not whole: `1,234`, `6.50`."""
    return f"{value:,.0f}" if float(value).is_integer() else figures(value)


def decimals(value: float, digits: int) -> int:
    """Decimal places that give `value` so many significant figures; at most nine."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of 9.996 that of 10.0
    return min(digits - 1 - exponent, 9)


def ms(value: float) -> str:
    """A duration given in ms; microseconds below 0.1 ms, seconds from 10 s."""
    if abs(value) >= 10_000:
        return f"{figures(value / 1000)} s"
    if 0 < abs(value) < 0.1:
        return f"{figures(value * 1000)} us"
    return f"{figures(value)} ms"


def us(value: float) -> str:
    """A duration in a column of microseconds."""
    return f"{figures(value)} us"


def pct(value: float) -> str:
    """A share: `61 %`, `6.1 %`, `< 0.1 %`, `> 1,000 %`."""
    if abs(value) > _MOST:
        return "> 1,000 %" if value > 0 else "< -1,000 %"
    if 0 < value < 0.05:
        return "< 0.1 %"
    if -0.05 < value <= 0:
        return "0.0 %"
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def pct_beside(value: float, limit: float) -> str:
    """A share next to a limit, with enough decimals to differ from it."""
    if value == limit or pct(value) != pct(limit):
        return pct(value)
    for count in (1, 2):
        if round(value, count) != round(limit, count):
            return f"{value:.{count}f} %"
    return f"{value:.3g} %"


def share_of(value: float, limit: float) -> str:
    """How much is removed, next to a limit: `61 % of` or `nothing from`."""
    return f"{pct_beside(value, limit)} of" if value > 0 else "nothing from"


def times(value: float) -> str:
    """A ratio: `2.87x`, two decimals below ten and three figures above; `> 1,000x`."""
    if value > _MOST:
        return "> 1,000x"
    if 0 < value < 0.005:
        return "< 0.01x"
    return f"{value:.2f}x" if abs(value) < 9.995 else f"{figures(value)}x"


def change(before: float, after: float) -> str:
    """How much a value changed: `+12 %`, `-3.4 %`, `12.3x` beyond 1,000 %; empty if it was 0."""
    if not before:
        return ""
    moved = 100.0 * (after - before) / abs(before)
    if abs(moved) > _MOST:
        return times(after / before) if after / before > 0 else pct(moved)
    return f"{moved:+.0f} %" if abs(moved) >= 9.95 else f"{moved:+.1f} %"


def mib(value: float) -> str:
    """An amount of memory given in MiB."""
    return f"{figures(value / 1024)} GiB" if abs(value) >= 1024 else f"{figures(value)} MiB"


def duration(seconds: float) -> str:
    """A time to wait: "0.4 s", "12 s", "3 min"."""
    below = f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
    return below if seconds < 100 else f"{seconds / 60:.0f} min"


def plural(count: float, noun: str) -> str:
    """`1 step`, `3 steps`, `1.5 launches`."""
    text = f"{count:,.0f}" if float(count).is_integer() else f"{count:.1f}"
    if count == 1:
        return f"{text} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{text} {noun[:-1]}ies"
    return f"{text} {noun}{'es' if noun.endswith(('ch', 'sh', 's')) else 's'}"


def sentence(clause: str) -> str:
    """A clause with a capital and a period; a name at its beginning stays as it is written."""
    word = _WORD.match(clause)
    is_name = word is None or word[0] == "launchscope"
    first = clause[:1] if is_name else clause[:1].upper()
    return f"{first}{clause[1:]}{'' if clause.endswith(_ENDS) else '.'}"


def shapes(tensors: Iterable[TensorShape]) -> str:
    """`(8, 129) int64, (8,) float32`."""
    return ", ".join(map(str, tensors))


def first_shapes(tensors: Sequence[TensorShape]) -> str:
    """The same for at most three: `(1, 1) int64, (8, 79) float32, (8, 79) float32 and 10 more`."""
    more = len(tensors) - _MOST_SHAPES
    return f"{shapes(tensors[:_MOST_SHAPES])} and {more} more" if more > 0 else shapes(tensors)


def place(where: SourceLine | None) -> str:
    """A line as people read it: without the folder in which a library is installed."""
    return "" if where is None else installed(str(where))


def installed(path: str) -> str:
    """A path in a library from the folder in which the library is installed; others unchanged."""
    return _INSTALLED.sub("", path)


def listed(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing for nothing."""
    if not items:
        return ""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def flagged(flags: Mapping[str, Sequence[str]]) -> str:
    """`A and B with f=True; C with g=True` for flags by class; without classes that have none."""
    parts = []
    for own in dict.fromkeys(map(tuple, flags.values())):
        names = [name for name, given in flags.items() if own and tuple(given) == own]
        named = listed([f"{flag}=True" for flag in own])
        parts += [f"{listed(names)} with {named}"] if names else []
    return "; ".join(parts)


def listed_first(items: Sequence[str], most: int) -> str:
    """As `listed`, with `3 more` in place of what is beyond `most`."""
    more = len(items) - most
    return listed([*items[:most], *([f"{more:,} more"] if more > 0 else [])])


def number(metric: Metric | None, *, spread: bool = True) -> str:
    """A metric without its unit, as `9.01 ± 0.04`: both to the decimal place of the spread."""
    if metric is None or metric.value is None:
        return NOT_MEASURED
    value = float(metric.value)
    if metric.exact or (metric.unit in ("1", "steps") and value.is_integer()):
        return count(value)
    half = (metric.iqr or 0.0) / 2
    if half <= 0 or value == 0:
        return figures(value)
    places = min(decimals(half, 1), decimals(value, _MOST_FIGURES))
    places = max(places, decimals(value, _FEWEST_FIGURES))
    text = fixed(value, places)
    return f"{text} ± {fixed(half, places)}" if spread and round(half, places) else text


def with_unit(metric: Metric | None, *, spread: bool = True) -> str:
    """A metric with its unit, as `9.01 ± 0.04 ms`; without a spread the unit suits the value."""
    text = number(metric, spread=spread)
    if metric is None or metric.value is None or metric.unit == "1":
        return text
    if metric.unit in _OF_UNIT and not (spread and shows_spread(metric)):
        return _OF_UNIT[metric.unit](float(metric.value))
    return f"{text} {metric.unit}"


_OF_UNIT: dict[str, Callable[[float], str]] = {
    "%": pct,
    "MiB": mib,
    "x": times,
    "ms": ms,
    "us": lambda value: ms(value / 1000),
}


def shows_spread(metric: Metric | None) -> bool:
    """Whether the metric is written with a ±."""
    is_plain = metric is not None and metric.unit in ("%", "MiB", "x")
    return not is_plain and number(metric) != number(metric, spread=False)


def fixed(value: float, places: int) -> str:
    """`value` rounded to so many decimal places; a negative number of them rounds to tens."""
    return f"{round(value, places):,.{max(0, places)}f}"
