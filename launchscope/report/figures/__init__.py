"""What the HTML report draws: figures as plain data, which the page's own script lays out.

Figures hold values and words; where they go, and how large they are, the page decides. Every fact
in them is also in a table of the report, or in the JSON file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from launchscope.model import Comparison, Profile, Ranks
from launchscope.report.figures import comparison, profile, ranks
from launchscope.report.figures.figure import Figure

_FIGURES: dict[type, Callable[[Any], Iterator[Figure]]] = {
    Profile: profile.of_profile,
    Comparison: comparison.of_comparison,
    Ranks: ranks.of_ranks,
}


def figures_of(value: object) -> tuple[Figure, ...]:
    """The figures of a value, in the order of the page; none for a type that has none."""
    made = _FIGURES.get(type(value))
    return () if made is None else tuple(made(value))
