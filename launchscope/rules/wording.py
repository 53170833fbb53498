"""Numbers as they stand in a sentence: three figures, a unit, no spread."""

from __future__ import annotations

import re

_INSTALLED = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")


def figures(value: float, count: int = 3) -> str:
    """`value` to `count` significant figures, whole units at least: 9.014 -> "9.01"."""
    if value == 0:
        return "0"
    return f"{value:,.{max(decimals(value, count), 0)}f}"


def decimals(value: float, count: int) -> int:
    """Decimal places at which `value`, rounded there, has `count` figures; at most nine."""
    exponent = int(f"{value:.{count - 1}e}".partition("e")[2])  # of 9.996 that of 10.0
    return min(count - 1 - exponent, 9)


def ms(value: float) -> str:
    """A duration given in ms; microseconds below 0.1 ms, seconds from 10 s."""
    if abs(value) >= 10_000:
        return f"{figures(value / 1000)} s"
    if 0 < abs(value) < 0.1:
        return f"{figures(value * 1000)} us"
    return f"{figures(value)} ms"


def pct(value: float) -> str:
    """A share: whole per cents from 10 up, one decimal below, and what is hardly more than none
    as such: `61 %`, `6.1 %`, `< 0.1 %`."""
    if 0 < value < 0.05:
        return "< 0.1 %"
    if -0.05 < value <= 0:
        return "0.0 %"
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def pct_beside(value: float, limit: float) -> str:
    """A share held against a limit: with the decimals that tell the two apart."""
    if value == limit or pct(value) != pct(limit):
        return pct(value)
    return next(
        (text for count in (1, 2) if (text := f"{value:.{count}f} %") != f"{limit:.{count}f} %"),
        f"{value:.3g} %",
    )


def times(value: float) -> str:
    """A ratio: `2.87x`, two decimals below ten and three figures above."""
    return f"{value:.2f}x" if abs(value) < 9.995 else f"{figures(value)}x"


def mib(value: float) -> str:
    """An amount of memory given in MiB."""
    return f"{figures(value / 1024)} GiB" if abs(value) >= 1024 else f"{figures(value)} MiB"


def size_of(size: int) -> str:
    """An amount of memory given in bytes."""
    if size < 1024:
        return plural(size, "byte")
    return f"{figures(size / 1024)} KiB" if size < 2**20 else mib(size / 2**20)


def plural(count: float, noun: str) -> str:
    """`1 step`, `3 steps`, `1.5 launches`."""
    text = f"{count:,.0f}" if float(count).is_integer() else f"{count:.1f}"
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "sh", "s")) else "s"
    return f"{text} {noun}{ending}"


def place(where: str) -> str:
    """A line as people read it: where a library is installed says nothing, and fills a row."""
    return _INSTALLED.sub("", where)


def listed(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing for nothing."""
    if not items:
        return ""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
