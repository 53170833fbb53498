"""What an iteration does more or less often than in the baseline: kernels, ops, blockers, in the
step and between steps, and periodic work. Code above a line moves it, so the lines of each file are
aligned by the ops that they run, not by number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Literal

from launchscope.gate.measurement import blocker_ranges, totals
from launchscope.model import (
    Blocker,
    Change,
    KernelRow,
    OpRow,
    OverheadRow,
    PeriodicWork,
    Profile,
    SourceLine,
)

# Kernels are counted per step over several steps; a smaller difference is one odd step.
_LEAST = 0.01
_MOST_LINES = 3

Lines = dict[str, list[tuple[int, "Counter[str]"]]]  # by file, in order


def changes(
    profile: Profile, baseline: Profile, *, by_operator: bool = False
) -> tuple[Change, ...]:
    """Blockers, then ops, then kernels, each with the largest differences first; what is between
    steps comes last, with periodic work at the end. A kind that one of the two does not hold at all
    (not inspected, not traced) is left out. `by_operator`: launches of operators in place of
    kernels, whose names change with every version."""
    found: list[Change] = []
    if None not in (profile.shapes.stable, baseline.shapes.stable):
        counts = (
            Counter({op: most for op, (_, most) in blocker_ranges(p).items()})
            for p in (profile, baseline)
        )
        found += _blockers(profile.blockers, baseline.blockers, *counts)
    if profile.ops and baseline.ops:
        found += _ops(profile.ops, baseline.ops)
    if by_operator:
        found += _operators(profile.launches_by_operator, baseline.launches_by_operator)
    elif profile.kernels and baseline.kernels:
        found += _kernels(profile.kernels, baseline.kernels)
    return (*found, *_between(profile, baseline, by_operator))


def _between(profile: Profile, baseline: Profile, by_operator: bool) -> list[Change]:
    now, before = profile.between, baseline.between
    if now is None or before is None:
        return []

    def measured(metric: str) -> bool:
        return None not in (profile.value(metric), baseline.value(metric))

    found: list[Change] = []
    if measured("between_ops"):
        counts = (totals((b.op, b.count) for b in p.blockers) for p in (now, before))
        found += _blockers(now.blockers, before.blockers, *counts)
        found += _ops(now.ops, before.ops)
    if measured("between_launches") and not by_operator:
        found += _kernels(now.kernels, before.kernels)
    found += _periodic(now.periodic, before.periodic, measured)
    return [replace(change, between=True) for change in found]


def _periodic(
    now: Sequence[PeriodicWork], before: Sequence[PeriodicWork], measured: Callable[[str], bool]
) -> list[Change]:
    """Work with a known period, by metric, as an average per iteration."""

    def lines(metric: str, appeared: bool) -> Iterable[SourceLine]:
        """The lines of work that the other Profile lacks."""
        more, less = (now, before) if appeared else (before, now)
        known = [(work.period, work.counts) for work in less]
        own = (w for w in more if w.period and (w.period, w.counts) not in known)
        return dict.fromkeys(line for w in own if metric in w.counts for line in w.where)

    had, has = defaultdict[str, float](float), defaultdict[str, float](float)
    for found, rows in ((had, before), (has, now)):
        for work in rows:
            for metric, count in work.counts.items():
                if work.period and measured(metric):
                    found[metric] += count / work.period
    return _changed("work", had, has, lines)


def new_blockers(profile: Profile, baseline: Profile) -> tuple[int, int]:
    """How many blockers, by op, a step has beyond the most of the baseline: in every step of every
    process, and in any."""
    before, after = blocker_ranges(baseline), blocker_ranges(profile)
    had = {op: before.get(op, (0, 0))[1] for op in after}
    always = sum(max(0, fewest - had[op]) for op, (fewest, _) in after.items())
    return always, sum(max(0, most - had[op]) for op, (_, most) in after.items())


def _changed(
    kind: Literal["kernel", "operator", "op", "blocker", "work"],
    before: Mapping[str, float],
    after: Mapping[str, float],
    lines: Callable[[str, bool], Iterable[SourceLine]],
) -> list[Change]:
    """What appeared before what went, larger differences first. `lines` gets a name and whether it
    appeared, and gives its lines in the Profile that has more of it."""
    found = [
        Change(kind, name, had, has, tuple(lines(name, has > had))[:_MOST_LINES])
        for name in {**after, **before}
        if abs((has := after[name]) - (had := before[name])) >= _LEAST
    ]
    return sorted(found, key=lambda c: (not c.appeared, -abs(c.after - c.before), c.name))


def _blockers(
    now: Sequence[Blocker], before: Sequence[Blocker], has: Counter[str], had: Counter[str]
) -> list[Change]:
    def lines(op: str, appeared: bool) -> Iterable[SourceLine]:
        """The lines; first those whose text the other Profile lacks."""
        more, less = (now, before) if appeared else (before, now)
        known = {_text(blocker) for blocker in less if blocker.op == op}
        rows = [blocker for blocker in more if blocker.op == op]
        rows.sort(key=lambda blocker: _text(blocker) in known)
        found = ((blocker.where, blocker.library and blocker.library.where) for blocker in rows)
        return dict.fromkeys(line for lines in found for line in lines if line)

    return _changed("blocker", had, has, lines)


def _text(blocker: Blocker) -> str | SourceLine | None:
    run_by = blocker.library or blocker
    return run_by.code or run_by.where


def _kernels(now: Sequence[KernelRow], before: Sequence[KernelRow]) -> list[Change]:
    lines_of = tuple({row.name: row.where for row in rows} for rows in (before, now))

    def lines(name: str, appeared: bool) -> Iterable[SourceLine]:
        where = lines_of[appeared][name]
        return (where,) if where else ()

    had, has = (defaultdict(float, {row.name: row.count for row in rows}) for rows in (before, now))
    return _changed("kernel", had, has, lines)


def _operators(
    now: Sequence[OverheadRow] | None, before: Sequence[OverheadRow] | None
) -> list[Change]:
    if now is None or before is None:
        return []
    had, has = (
        defaultdict(float, {row.name: row.launches for row in rows if row.part == "known"})
        for rows in (before, now)
    )
    return _changed("operator", had, has, lambda name, appeared: ())


# -------------------------------------------------------------------------------- ops


def _ops(now: tuple[OpRow, ...], before: tuple[OpRow, ...]) -> list[Change]:
    gained, lost = _gained_and_lost(_by_line(before), _by_line(now))
    # A forward is the cause of its backward, so lines are in the order in which they ran.
    order = {row.where: place for place, row in reversed(list(enumerate(now)))}

    def lines(name: str, appeared: bool) -> Iterable[SourceLine]:
        files = gained if appeared else lost
        found = [
            SourceLine(f, line) for f, rows in files.items() for line, ops in rows if ops[name]
        ]
        return sorted(found, key=lambda line: (order.get(line, 0), line))

    had, has = (totals((row.name, row.count) for row in ops) for ops in (before, now))
    return _changed("op", had, has, lines)


def _by_line(ops: tuple[OpRow, ...]) -> Lines:
    found: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in ops:
        if row.where is not None:
            found[row.where.file][row.where.line][row.name] += row.count
    return {file: sorted(lines.items()) for file, lines in found.items()}


def _gained_and_lost(before: Lines, after: Lines) -> tuple[Lines, Lines]:
    """The lines with the ops that they gained, and those of the baseline with what they lost."""
    gained: Lines = defaultdict(list)
    lost: Lines = defaultdict(list)
    for file in {**before, **after}:
        old, new = before.get(file, []), after.get(file, [])
        had, has = ([frozenset(ops.items()) for _, ops in rows] for rows in (old, new))
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, had, has, autojunk=False).get_opcodes():
            if tag == "equal":
                continue
            came = sum((ops for _, ops in new[j1:j2]), Counter[str]())
            went = sum((ops for _, ops in old[i1:i2]), Counter[str]())
            gained[file] += [(line, ops & (came - went)) for line, ops in new[j1:j2]]
            lost[file] += [(line, ops & (went - came)) for line, ops in old[i1:i2]]
    return gained, lost
