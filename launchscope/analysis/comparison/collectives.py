"""Which rank was the last to arrive at each collective, from the traces of several ranks.

Ranks have clocks of their own. Their collectives are matched in order: all ranks finish one
together, so the matching is right where the ends agree up to a slow drift between two clocks. A
kernel of a collective begins when its rank arrives and ends when all have: the shortest one is the
last to arrive, and the others waited for as long as theirs lasted longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from launchscope.analysis.timeline.communication import is_collective
from launchscope.model.comparison import Arrival
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Trace, ints

# Ranks leave a collective within this of one another, or within this share of it.
_APART_NS, _APART_SHARE = 50_000, 0.05
# One recording may begin or end this many collectives before another one.
_MOST_SHIFT = 64
# Neighbors that show how far apart two clocks are at a collective.
_NEIGHBORS = 21


@dataclass(frozen=True)
class Collectives:
    """The collectives of one rank by end, which is the same order on all; ns on its own clock."""

    name: tuple[str, ...]
    start: Ints
    end: Ints

    @property
    def length(self) -> Ints:
        return self.end - self.start


def collectives_of(trace: Trace) -> Collectives:
    """The collective kernels of a trace, in order."""
    found = trace.activities[is_collective(trace.activities)]
    found = found[np.argsort(ints(found, c.END), kind="stable")]
    return Collectives(tuple(found[c.NAME]), ints(found, c.START), ints(found, c.END))


def arrivals(ranks: Mapping[str, Collectives]) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Every collective that two or more of the named ranks share, in order, and the names of ranks
    with collectives that match those of no other rank."""
    names = [name for name, found in ranks.items() if found.name]
    if len(names) < 2:
        return (), ()
    first = ranks[names[0]]
    duration = np.full((len(names), len(first.name)), np.iinfo(np.int64).max)
    duration[0] = first.length
    unmatched = []
    for row, name in enumerate(names[1:], 1):
        mine, theirs = _matched(first, ranks[name])
        duration[row, mine] = ranks[name].length[theirs]
        if not len(mine):
            unmatched.append(name)
    if len(unmatched) == len(names) - 1:
        return (), tuple(names)
    here = duration < np.iinfo(np.int64).max
    last = duration.argmin(axis=0)
    longest = np.where(here, duration, 0).max(axis=0)
    found = []
    for place in np.flatnonzero(here.sum(axis=0) > 1).tolist():
        waited = int(longest[place] - duration[last[place], place]) / 1e6
        found.append(Arrival(place, first.name[place], names[last[place]], waited))
    return tuple(found), tuple(unmatched)


def _matched(one: Collectives, other: Collectives) -> tuple[Ints, Ints]:
    """Rows of the collectives that both have; none where the ends of most do not agree."""
    numbers = {name: row for row, name in enumerate(dict.fromkeys((*one.name, *other.name)))}
    ours, theirs = (np.asarray([numbers[n] for n in each.name]) for each in (one, other))
    best = (-1, 0.0)
    matched = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for shift in range(-_MOST_SHIFT, _MOST_SHIFT + 1):
        mine = np.arange(max(0, -shift), min(len(ours), len(theirs) - shift))
        mine = mine[ours[mine] == theirs[mine + shift]]
        if not len(mine) or len(mine) < best[0]:
            continue
        apart = other.end[mine + shift] - one.end[mine]
        together = _end_together(apart, np.maximum(one.length[mine], other.length[mine + shift]))
        # Of two shifts that fit alike, the one for which the clocks differ less.
        fit = int(together.sum()), -abs(float(np.median(apart)))
        if fit > best:
            best, matched = fit, (mine[together], mine[together] + shift)
    if 2 * best[0] <= min(len(ours), len(theirs)):
        return matched[0][:0], matched[1][:0]
    return matched


def _end_together(apart: Ints, longer: Ints) -> Bools:
    """Whether each pair's ends, so far `apart`, agree up to the difference between the clocks."""
    near = np.pad(apart.astype(np.float64), _NEIGHBORS // 2, constant_values=np.nan)
    clocks = np.nanmedian(np.lib.stride_tricks.sliding_window_view(near, _NEIGHBORS), axis=1)
    within: Bools = np.abs(apart - clocks) <= np.maximum(_APART_NS, _APART_SHARE * longer)
    return within
