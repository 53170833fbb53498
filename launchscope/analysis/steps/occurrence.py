"""Which of the observed iterations do what: all of them, one in so many, or some without a rule.

Work that occurs in some iterations has a period if it occurs in every p-th observed one, and was
observed often enough to be seen p iterations later twice, wherever the observation begins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from msgspec import Struct

from launchscope.model import PeriodicWork, SourceLine

_SEEN_AT_LEAST = 3


class Kind(Struct, frozen=True):
    """Work that counts in one metric: an op or call, at one line."""

    metric: str
    name: str
    where: SourceLine | None = None


class Occurrence(Struct, frozen=True):
    """What all iterations do, the rest by the iterations in which it occurs, and, by metric, the
    most of the work without a period in one iteration."""

    always: Counter[Kind]
    periodic: tuple[PeriodicWork, ...]
    irregular: Counter[str]


def occurrence(counts: Sequence[Counter[Kind]]) -> Occurrence:
    """From the counts of each observed iteration; at least one iteration."""
    always = reduce(and_, counts)
    rests = [count - always for count in counts]
    seen: defaultdict[Kind, list[int]] = defaultdict(list)
    for index, rest in enumerate(rests):
        for kind in rest:
            seen[kind].append(index)
    together: defaultdict[tuple[int, ...], Counter[Kind]] = defaultdict(Counter)
    for kind, places in seen.items():
        together[tuple(places)][kind] = min(rests[place][kind] for place in places)
    periodic = tuple(
        PeriodicWork(
            len(places),
            len(counts),
            _period(places, len(counts)),
            dict(totals(kinds)),
            tuple(sorted({kind.where for kind in kinds if kind.where is not None})),
        )
        for places, kinds in sorted(together.items())
    )
    regular = {kind for kind, places in seen.items() if _period(places, len(counts))}
    irregular = (
        totals(Counter({kind: n for kind, n in rest.items() if kind not in regular}))
        for rest in rests
    )
    return Occurrence(always, periodic, reduce(or_, irregular))


def _period(places: Sequence[int], observed: int) -> int | None:
    """The period, in iterations, of work at these places among the observed iterations."""
    if len(places) < _SEEN_AT_LEAST:
        return None
    period = places[1] - places[0]
    regular = tuple(places) == tuple(range(places[0], observed, period))
    # Otherwise where the observation begins would decide whether the period is known.
    known = places[0] < period and _SEEN_AT_LEAST * period <= observed
    return period if regular and known else None


def totals(kinds: Counter[Kind]) -> Counter[str]:
    """The sum of the counts of each metric."""
    found: Counter[str] = Counter()
    for kind, count in kinds.items():
        found[kind.metric] += count
    return found
