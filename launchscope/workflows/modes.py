"""The ways to adopt that a person asked for."""

from __future__ import annotations

from difflib import get_close_matches

from launchscope.errors import UsageError
from launchscope.model import STRATEGIES, StrategyName


def modes_of(text: str | None) -> tuple[StrategyName, ...]:
    """`eager,compile` in the order of the ladder; UsageError for an unknown or doubled one."""
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in STRATEGIES:
            near = get_close_matches(name, STRATEGIES, n=1, cutoff=0.4)
            raise UsageError(
                f"--modes: unknown way {name!r}" if name else "--modes: an empty name",
                hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(STRATEGIES)}",
            )
        if names.count(name) > 1:
            raise UsageError(f"--modes: {name} is named twice", hint="each way runs once")
    return tuple(mode for mode in STRATEGIES if mode in names)
