"""What a step does more or less often than in the baseline: kernels, ops, blockers.

Lines move when code is added above them, so they are not compared by their number: the lines of
each file are aligned by the ops that they run, and what is left over is what changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from difflib import SequenceMatcher

from launchscope.gate.measurement import blocker_ranges
from launchscope.model import Blocker, Change, OpRow, Profile, SourceLine

# Kernels are counted per step over several steps; a smaller difference is one odd step.
_LEAST = 0.01
_MOST_LINES = 3

Lines = dict[str, list[tuple[int, "Counter[str]"]]]  # by file, in order


def changes(profile: Profile, baseline: Profile) -> tuple[Change, ...]:
    """Blockers, then ops, then kernels; of each the largest differences first.

    A kind that one of the two does not hold at all (not inspected, not traced) is left out.
    """
    found = list(_blockers(profile, baseline))
    if profile.ops and baseline.ops:
        found += _ops(profile, baseline)
    if profile.kernels and baseline.kernels:
        found += _kernels(profile, baseline)
    return tuple(found)


def new_blockers(profile: Profile, baseline: Profile) -> tuple[int, int]:
    """How many blockers a step has, by op, that no process of the baseline had: in every process,
    and in any."""
    before, after = blocker_ranges(baseline), blocker_ranges(profile)
    always = sometimes = 0
    for op, (fewest, most) in after.items():
        had = before.get(op, (0, 0))[1]
        always += max(0, fewest - had)
        sometimes += max(0, most - had)
    return always, sometimes


# --------------------------------------------------------------------------- blockers


def _blockers(profile: Profile, baseline: Profile) -> list[Change]:
    if profile.shapes.stable is None or baseline.shapes.stable is None:
        return []
    before, after = _blocker_counts(baseline), _blocker_counts(profile)
    return _sorted(
        Change("blocker", op, before[op], after[op], _blocker_lines(profile, baseline, op))
        for op in {**after, **before}
        if before[op] != after[op]
    )


def _blocker_counts(profile: Profile) -> Counter[str]:
    return Counter({op: most for op, (_, most) in blocker_ranges(profile).items()})


def _blocker_lines(profile: Profile, baseline: Profile, op: str) -> tuple[SourceLine, ...]:
    """The lines of the side that has more of the op, those whose text the other lacks first."""
    new = [b for b in profile.blockers if b.op == op and b.where]
    old = [b for b in baseline.blockers if b.op == op and b.where]
    if sum(b.count for b in new) < sum(b.count for b in old):
        new, old = old, new
    known = {_text(blocker) for blocker in old}
    ordered = sorted(new, key=lambda blocker: _text(blocker) in known)
    return tuple(dict.fromkeys(b.where for b in ordered if b.where))[:_MOST_LINES]


def _text(blocker: Blocker) -> str | SourceLine | None:
    return blocker.code or blocker.where


# -------------------------------------------------------------------------------- ops


def _ops(profile: Profile, baseline: Profile) -> list[Change]:
    before, after = _op_counts(baseline.ops), _op_counts(profile.ops)
    differing = {name for name in {**before, **after} if before[name] != after[name]}
    if not differing:
        return []
    gained, lost = _moved(_by_line(baseline.ops), _by_line(profile.ops))
    # A forward is the cause of its backward, so lines stand in the order in which they ran.
    order = {row.where: place for place, row in reversed(list(enumerate(profile.ops)))}
    return _sorted(
        Change(
            "op",
            name,
            before[name],
            after[name],
            _lines_with(gained if after[name] > before[name] else lost, name, order),
        )
        for name in differing
    )


def _op_counts(ops: tuple[OpRow, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in ops:
        counts[row.name] += row.count
    return counts


def _by_line(ops: tuple[OpRow, ...]) -> Lines:
    found: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in ops:
        if row.where is not None:
            found[row.where.file][row.where.line][row.name] += row.count
    return {file: sorted(lines.items()) for file, lines in found.items()}


def _moved(before: Lines, after: Lines) -> tuple[Lines, Lines]:
    """The lines with the ops that they gained, and those of the baseline with what they lost."""
    gained: Lines = defaultdict(list)
    lost: Lines = defaultdict(list)
    for file in {**before, **after}:
        old, new = before.get(file, []), after.get(file, [])
        matcher = SequenceMatcher(None, [_token(o) for _, o in old], [_token(n) for _, n in new],
                                  autojunk=False)  # fmt: skip
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                continue
            had = sum((ops for _, ops in old[i1:i2]), Counter[str]())
            has = sum((ops for _, ops in new[j1:j2]), Counter[str]())
            gained[file] += [(line, ops & (has - had)) for line, ops in new[j1:j2]]
            lost[file] += [(line, ops & (had - has)) for line, ops in old[i1:i2]]
    return gained, lost


def _token(ops: Counter[str]) -> frozenset[tuple[str, int]]:
    return frozenset(ops.items())


def _lines_with(
    lines: Lines, name: str, order: dict[SourceLine | None, int]
) -> tuple[SourceLine, ...]:
    """The lines with this op, in the order in which they ran, else in that of the file."""
    found = [
        SourceLine(file, line) for file, rows in lines.items() for line, ops in rows if ops[name]
    ]
    found.sort(key=lambda line: (order.get(line, 0), line))
    return tuple(found[:_MOST_LINES])


# ---------------------------------------------------------------------------- kernels


def _kernels(profile: Profile, baseline: Profile) -> list[Change]:
    before = {kernel.name: kernel for kernel in baseline.kernels}
    after = {kernel.name: kernel for kernel in profile.kernels}
    found = []
    for name in {**after, **before}:
        old, new = before.get(name), after.get(name)
        had, has = old.count if old else 0.0, new.count if new else 0.0
        if abs(has - had) < _LEAST:
            continue
        kernel = new if has > had else old
        where = (kernel.where,) if kernel is not None and kernel.where else ()
        found.append(Change("kernel", name, had, has, where))
    return _sorted(found)


def _sorted(found: Iterable[Change]) -> list[Change]:
    """What appeared before what went, larger differences first."""
    return sorted(found, key=lambda c: (not c.appeared, -abs(c.after - c.before), c.name))
