"""What an iteration does more or less often than in the baseline: kernels, ops, blockers, in the
step and between steps, and periodic work. Code above a line moves it, so the lines of each file are
aligned by what they do, not by number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from launchscope.gate.measurement import blocker_ranges
from launchscope.model import (
    Blocker,
    Change,
    ChangeKind,
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


class _Row(Struct, frozen=True):
    """How often a step does something at a line. `code` is the text of the line; `more` are lines
    that belong to it."""

    name: str
    count: float
    where: SourceLine | None = None
    more: tuple[SourceLine, ...] = ()
    code: str | None = None


_Rows = Sequence[_Row]


def changes(
    profile: Profile, baseline: Profile, *, by_operator: bool = False
) -> tuple[Change, ...]:
    """Blockers, then ops, then kernels, each with the largest differences first; what is between
    steps comes last, with periodic work at the end. A kind that one of the two does not hold at all
    (not inspected, not traced) is left out. `by_operator`: launches of operators in place of
    kernels, whose names change with every version."""
    found: list[Change] = []
    if None not in (profile.shapes.stable, baseline.shapes.stable):
        found += _changed("blocker", _blockers(baseline.blockers), _blockers(profile.blockers))
    if profile.ops and baseline.ops:
        found += _changed("op", _rows(baseline.ops), _rows(profile.ops))
    if by_operator:
        operators = (_operators(p.launches_by_operator) for p in (baseline, profile))
        found += _changed("operator", *operators)
    elif profile.kernels and baseline.kernels:
        found += _changed("kernel", _rows(baseline.kernels), _rows(profile.kernels))
    between = _between(profile, baseline, by_operator=by_operator)
    return (*found, *(replace(change, between=True) for change in between))


def _between(profile: Profile, baseline: Profile, *, by_operator: bool) -> list[Change]:
    now, before = profile.between, baseline.between
    if now is None or before is None:
        return []
    measured = {
        key for key in profile.metrics if None not in (profile.value(key), baseline.value(key))
    }
    found: list[Change] = []
    if "between_ops" in measured:
        found += _changed("blocker", _blockers(before.blockers), _blockers(now.blockers))
        found += _changed("op", _rows(before.ops), _rows(now.ops))
    if "between_launches" in measured and not by_operator:
        found += _changed("kernel", _rows(before.kernels), _rows(now.kernels))
    periodic = (_periodic(steps.periodic, measured) for steps in (before, now))
    return found + _changed("work", *periodic)


def new_blockers(profile: Profile, baseline: Profile) -> tuple[int, int]:
    """How many blockers, by op, a step has beyond the most of the baseline: in every step of every
    process, and in any."""
    before, after = blocker_ranges(baseline), blocker_ranges(profile)
    had = {op: before.get(op, (0, 0))[1] for op in after}
    always = sum(max(0, fewest - had[op]) for op, (fewest, _) in after.items())
    return always, sum(max(0, most - had[op]) for op, (_, most) in after.items())


# ----------------------------------------------------------------------- rows of a Profile


def _rows(rows: Iterable[OpRow | KernelRow]) -> _Rows:
    return [_Row(row.name, row.count, row.where) for row in rows]


def _blockers(rows: Iterable[Blocker]) -> _Rows:
    return [
        _Row(b.op, b.count, b.where, (b.library.where,) if b.library else (), (b.library or b).code)
        for b in rows
    ]


def _operators(rows: Iterable[OverheadRow] | None) -> _Rows:
    return [_Row(row.name, row.launches) for row in rows or () if row.part == "known"]


def _periodic(rows: Iterable[PeriodicWork], measured: Container[str]) -> _Rows:
    """Work with a known period, by metric, as an average per iteration."""
    return [
        _Row(metric, count / work.period, next(iter(work.where), None), work.where[1:])
        for work in rows
        if work.period
        for metric, count in work.counts.items()
        if metric in measured
    ]


# --------------------------------------------------------------------------- differences


def _changed(kind: ChangeKind, before: _Rows, after: _Rows) -> list[Change]:
    """What appeared before what went, larger differences first."""
    gained, lost = _gained_and_lost(before, after)
    had, has = _sums(before), _sums(after)
    found = []
    for name in {**has, **had}:
        if abs(has[name] - had[name]) >= _LEAST:
            rows = (gained if has[name] > had[name] else lost)[name]
            lines = (line for row in rows for line in (row.where, *row.more) if line)
            where = tuple(dict.fromkeys(lines))[:_MOST_LINES]
            found.append(Change(kind, name, had[name], has[name], where))
    return sorted(found, key=lambda c: (not c.appeared, -abs(c.after - c.before), c.name))


def _sums(rows: Iterable[_Row]) -> defaultdict[str, float]:
    sums = defaultdict[str, float](int)  # whole numbers stay whole
    for row in rows:
        sums[row.name] += row.count
    return sums


_Lines = defaultdict[str, list[_Row]]


def _gained_and_lost(before: _Rows, after: _Rows) -> tuple[_Lines, _Lines]:
    """By name, the rows at lines that do it more often, and those of the baseline at lines that
    did. A forward is the cause of its backward, so they are in the order in which they ran."""
    gained, lost = _Lines(list), _Lines(list)
    old_files, new_files = _by_line(before), _by_line(after)
    for file in {**old_files, **new_files}:
        for went, came in _edited(old_files[file], new_files[file]):
            _collect(gained, came, went)
            _collect(lost, went, came)
    place = {row: index for index, row in enumerate(after)}
    for rows in gained.values():
        rows.sort(key=place.__getitem__)
    return gained, lost


def _collect(found: _Lines, rows: _Rows, others: _Rows) -> None:
    """The rows of what there is more of than in the others."""
    more, less = _sums(rows), _sums(others)
    for row in rows:
        if more[row.name] > less[row.name]:
            found[row.name].append(row)


def _by_line(rows: _Rows) -> defaultdict[str, list[_Rows]]:
    """By file, the rows of each line."""
    lines: dict[SourceLine, list[_Row]] = {}
    for row in rows:
        if row.where is not None:
            lines.setdefault(row.where, []).append(row)
    files: defaultdict[str, list[_Rows]] = defaultdict(list)
    for line in sorted(lines):
        files[line.file].append(lines[line])
    return files


def _edited(old: Sequence[_Rows], new: Sequence[_Rows]) -> Iterator[tuple[_Rows, _Rows]]:
    """The rows of each span of lines that does something else."""
    had, has = (
        [frozenset((row.name, row.count, row.code) for row in rows) for rows in lines]
        for lines in (old, new)
    )
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, had, has, autojunk=False).get_opcodes():
        if tag != "equal":
            yield list(chain(*old[i1:i2])), list(chain(*new[j1:j2]))
