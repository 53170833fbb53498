"""Which rank was the last to arrive at each collective, from the traces of several ranks.

Ranks have clocks of their own. The collectives of a process group are matched in order: all of its
ranks finish one together, so the matching is right where the ends agree up to a slow drift between
two clocks, which all groups of two ranks have in common. A kernel of a collective begins when its
rank arrives and ends when all have: the shortest one is the last to arrive, and the others waited
for as long as theirs lasted longer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from launchscope.analysis.timeline.communication import is_collective
from launchscope.frozen import dataclass
from launchscope.model.comparison import Arrival
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, Trace, ints, median_of

# Ranks leave a collective within this of one another, or within this share of it.
_APART_NS, _APART_SHARE = 50_000, 0.05
# Ranks whose kernels of a collective are equally long up to this arrived together.
_TOGETHER_NS = 1000
# One recording may begin or end this many collectives before another one.
_MOST_SHIFT = 64
# Neighbors that show how far apart two clocks are at a collective.
_NEIGHBORS = 21
# So many of the collectives that two ranks share have to match; without the names of their groups,
# which may be several, more.
_LEAST_MATCHED, _LEAST_UNNAMED = 0.5, 0.75


@dataclass(frozen=True)
class Collectives:
    """The collectives of one rank by end, which is the same order on all ranks of a process group
    ("" where the trace names none); ns on the rank's own clock."""

    name: tuple[str, ...]
    start: Ints
    end: Ints
    group: tuple[str, ...]

    @property
    def length(self) -> Ints:
        return self.end - self.start

    def of_group(self, group: str) -> Ints:
        """Rows of the collectives of a group."""
        return np.asarray([row for row, own in enumerate(self.group) if own == group], np.int64)


def collectives_of(trace: Trace) -> Collectives:
    """The collective kernels of a trace, in order. If it names groups, those without one may be of
    any, and are left out."""
    found = trace.activities[is_collective(trace.activities)]
    found = found[np.argsort(ints(found, c.END), kind="stable")]
    unnamed = found[c.GROUP] == ""
    if not unnamed.all():
        found = found[~unnamed]
    times = ints(found, c.START), ints(found, c.END)
    return Collectives(tuple(found[c.NAME]), *times, tuple(found[c.GROUP]))


def arrivals(ranks: Mapping[str, Collectives]) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Every collective that two or more of the named ranks share, in the order of its group, and
    the names of ranks with collectives that match those of no other rank of their groups."""
    pairs: dict[tuple[str, str], tuple[Ints, Ints]] = {}
    found: list[Arrival] = []
    grouped, matched = set[str](), set[str]()
    for group in dict.fromkeys(group for each in ranks.values() for group in each.group):
        members = [name for name, each in ranks.items() if group in each.group]
        if len(members) == 1:
            continue
        grouped.update(members)
        first = ranks[members[0]]
        rows = first.of_group(group)
        duration = np.full((len(members), len(first.name)), np.iinfo(np.int64).max)
        duration[0] = first.length
        for row, name in enumerate(members[1:], 1):
            pair = members[0], name
            if pair not in pairs:
                pairs[pair] = _matched(first, ranks[name])
            mine, theirs = pairs[pair]
            duration[row, mine] = ranks[name].length[theirs]
            if np.isin(mine, rows).any():
                matched.update(pair)
        duration = duration[:, rows]
        here = duration < np.iinfo(np.int64).max
        shortest = duration.min(axis=0)
        waited = np.where(here, duration, 0).max(axis=0) - shortest
        # Of several that arrive last, the one that waits least in all: it held up the others.
        in_all = np.asarray([int(ranks[name].length.sum()) for name in members])[:, None]
        is_last = duration <= shortest + _TOGETHER_NS
        last = np.where(is_last, in_all, np.iinfo(np.int64).max).argmin(axis=0)
        for place in np.flatnonzero(here.sum(axis=0) > 1).tolist():
            late = members[last[place]] if waited[place] > _TOGETHER_NS else None
            name = first.name[rows[place]]
            found.append(Arrival(place, name, late, int(waited[place]) / 1e6, group or None))
    return tuple(found), tuple(name for name in ranks if name in grouped - matched)


def _matched(one: Collectives, other: Collectives) -> tuple[Ints, Ints]:
    """Rows of the collectives that both have, group by group. The largest group that matches shows
    how far the clocks are apart, the others have to agree with it."""
    mine, theirs = np.zeros((2, 0), np.int64)
    shared = [(one.of_group(group), other.of_group(group)) for group in dict.fromkeys(one.group)]
    for own, others in sorted(shared, key=lambda rows: -min(map(len, rows))):
        if not len(others):
            break
        clocks = None
        if len(mine):
            order = np.argsort(one.end[mine])
            apart = (other.end[theirs] - one.end[mine])[order]
            clocks = np.interp(one.end[own], one.end[mine][order], _clocks(apart))
        ours, as_theirs = _in_order(one, other, own, others, clocks)
        mine, theirs = np.append(mine, ours), np.append(theirs, as_theirs)
    return mine, theirs


def _in_order(
    one: Collectives, other: Collectives, ours: Ints, theirs: Ints, clocks: Floats | None
) -> tuple[Ints, Ints]:
    """Those of these rows that match; none where the ends of most do not agree. `clocks`: how far
    apart they are at each of `ours`, where other collectives showed that."""
    numbers = {name: row for row, name in enumerate(dict.fromkeys((*one.name, *other.name)))}
    name = np.asarray([numbers[one.name[row]] for row in ours.tolist()])
    as_named = np.asarray([numbers[other.name[row]] for row in theirs.tolist()])
    best = (-1, 0.0)
    matched = ours[:0], theirs[:0]
    for shift in range(-_MOST_SHIFT, _MOST_SHIFT + 1):
        mine = np.arange(max(0, -shift), min(len(ours), len(theirs) - shift))
        mine = mine[name[mine] == as_named[mine + shift]]
        if not len(mine) or len(mine) < best[0]:
            continue
        pair = ours[mine], theirs[mine + shift]
        apart = other.end[pair[1]] - one.end[pair[0]]
        off = apart - (_clocks(apart) if clocks is None else clocks[mine])
        longer = np.maximum(one.length[pair[0]], other.length[pair[1]])
        together: Bools = np.abs(off) <= np.maximum(_APART_NS, _APART_SHARE * longer)
        # Of two shifts that fit alike, the one for which the clocks differ less.
        fit = int(together.sum()), -abs(median_of(apart if clocks is None else off))
        if fit > best:
            best, matched = fit, (pair[0][together], pair[1][together])
    named = one.group[ours[0]] != ""
    least = _LEAST_MATCHED if named or clocks is not None else _LEAST_UNNAMED
    if best[0] <= least * min(len(ours), len(theirs)):
        return matched[0][:0], matched[1][:0]
    return matched


def _clocks(apart: Ints) -> Floats:
    """How far apart two clocks are at each of these differences of ends, by the ends around it."""
    if len(apart) == 1:
        return apart.astype(np.float64)
    near = np.pad(apart.astype(np.float64), _NEIGHBORS // 2, constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(near, _NEIGHBORS)
    # Without itself: two groups that take turns would each agree with their own difference.
    return np.nanmedian(np.delete(around, _NEIGHBORS // 2, axis=1), axis=1)
