"""Which rank was the last to arrive at each collective, from the traces of several ranks.

Ranks have clocks of their own. The collectives of a process group are matched in order: all of its
ranks finish one together, so the matching is right where the ends agree up to a slow drift between
two clocks, which all groups of two ranks have in common. A kernel of a collective begins when its
rank arrives and ends when all have: the shortest one is the last to arrive, and the others waited
for as long as theirs lasted longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from launchscope.analysis.timeline.communication import is_collective
from launchscope.frozen import dataclass
from launchscope.model.ranks import Arrival, RankCollectives
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

    @cached_property
    def by_group(self) -> dict[str, Ints]:
        """Rows of the collectives of each group."""
        groups, number = _numbered(self.group)
        return {group: np.flatnonzero(number == own) for own, group in enumerate(groups)}

    @cached_property
    def kernels(self) -> tuple[tuple[str, ...], Ints]:
        """The names of kernels, each once, and which of them each collective has."""
        return _numbered(self.name)


def _numbered(names: tuple[str, ...]) -> tuple[tuple[str, ...], Ints]:
    rows = {name: row for row, name in enumerate(dict.fromkeys(names))}
    return tuple(rows), np.asarray([rows[name] for name in names], np.int64)


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


def packed(name: str, found: Collectives) -> RankCollectives:
    """The collectives of the rank with this name, for a file."""
    (kernels, kernel), (groups, group) = found.kernels, _numbered(found.group)
    return RankCollectives(
        name,
        kernels,
        groups,
        kernel.astype("<i4").tobytes(),
        group.astype("<i4").tobytes(),
        found.start.astype("<i8").tobytes(),
        found.end.astype("<i8").tobytes(),
    )


def unpacked(saved: RankCollectives) -> Collectives:
    """What `packed` made these of. ValueError if they are not of one length, or name what is not
    there."""
    kernel, group = np.frombuffer(saved.kernel, "<i4"), np.frombuffer(saved.group, "<i4")
    start, end = np.frombuffer(saved.start, "<i8"), np.frombuffer(saved.end, "<i8")
    if len({len(kernel), len(group), len(start), len(end)}) > 1:
        raise ValueError("the columns of collectives differ in length")
    for rows, names in ((kernel, saved.kernels), (group, saved.groups)):
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(names):
            raise ValueError("a collective has a name that is not there")
    return Collectives(
        tuple(map(saved.kernels.__getitem__, kernel.tolist())),
        start.astype(np.int64),
        end.astype(np.int64),
        tuple(map(saved.groups.__getitem__, group.tolist())),
    )


def arrivals(ranks: Mapping[str, Collectives]) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Every collective that two or more of the named ranks share, in the order of its group, and
    the names of ranks with collectives that match those of no other rank of their groups."""
    pairs: dict[tuple[str, str], tuple[Ints, Ints]] = {}
    found: list[Arrival] = []
    grouped, matched = set[str](), set[str]()
    by_group: dict[str, list[str]] = {}
    for name, each in ranks.items():
        for group in each.by_group:
            by_group.setdefault(group, []).append(name)
    waiting = {name: int(each.length.sum()) for name, each in ranks.items()}
    for group, members in by_group.items():
        if len(members) == 1:
            continue
        grouped.update(members)
        first = ranks[members[0]]
        rows = first.by_group[group]
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
        in_all = np.asarray([waiting[name] for name in members])[:, None]
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
    shared = [(own, other.by_group[g]) for g, own in one.by_group.items() if g in other.by_group]
    for own, others in sorted(shared, key=lambda rows: -min(map(len, rows))):
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
    """The rows that match; none where the ends of most do not agree. `clocks`: how far apart the
    clocks are at each of `ours`, where other collectives showed that."""
    (names, name), (other_names, as_named) = one.kernels, other.kernels
    same = np.asarray([names.index(each) if each in names else -1 for each in other_names])
    name, as_named = name[ours], same[as_named[theirs]]
    best = (-1, 0.0)
    matched = ours[:0], theirs[:0]
    shifts = range(-_MOST_SHIFT, _MOST_SHIFT + 1)
    places = [np.arange(max(0, -by), min(len(ours), len(theirs) - by)) for by in shifts]
    # From the most that can match to the least: after a good one, most can be skipped.
    for mine, shift in sorted(zip(places, shifts), key=lambda place: -len(place[0])):
        if len(mine) < max(best[0], 1):
            break
        mine = mine[name[mine] == as_named[mine + shift]]
        if len(mine) < max(best[0], 1):
            continue
        pair = ours[mine], theirs[mine + shift]
        apart = other.end[pair[1]] - one.end[pair[0]]
        if clocks is None and np.ptp(apart) <= _APART_NS:
            off = apart - np.median(apart)  # all around it are as near
        else:
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
    # The nearest ones without itself: two groups that take turns would each agree with their own
    # difference. At the ends these are the first and the last.
    count = min(_NEIGHBORS, len(apart))
    around = np.lib.stride_tricks.sliding_window_view(apart.astype(np.float64), count)
    first = np.clip(np.arange(len(apart)) - count // 2, 0, len(apart) - count)
    others = np.arange(count)[:, None] != np.arange(len(apart)) - first
    near = around[first][others.T].reshape(-1, count - 1)
    middle = [(count - 2) // 2, (count - 1) // 2]  # np.median, which also looks for NaN, is slower
    return np.asarray(np.partition(near, middle, axis=1)[:, middle].mean(axis=1))
