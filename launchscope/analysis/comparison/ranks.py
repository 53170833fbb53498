"""Profiles side by side -> Ranks: rows, the slowest rank and the skew, or workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from launchscope.model import Profile
from launchscope.model.ranks import RankRow, Ranks, Skew
from launchscope.wording import ms, pct, plural

_COMMUNICATION = ("nccldevkernel", "ncclkernel", "rccl", "nccl:")
_SKEWS = ("own_ms", "iteration_ms", "busy_ms", "communication_ms", "launches_per_step")
# Ranks closer than this are not told apart.
_LEAST_SKEW_PCT = 1.0


def rank_row(profile: Profile, name: str) -> RankRow:
    """The figures of one file."""
    iteration = profile.value("iteration_ms")
    communication = None
    if profile.kernels:
        inside = (k for k in profile.kernels if k.name.lower().startswith(_COMMUNICATION))
        communication = sum(kernel.total_us for kernel in inside) / 1e3
    own = None
    if iteration is not None:
        own = max(iteration - (communication or 0.0), 0.0)
    verdict, target = profile.verdict, profile.target
    return RankRow(
        name=name,
        rank=profile.facts.rank,
        iteration_ms=iteration,
        busy_ms=profile.value("iteration_busy_ms"),
        communication_ms=communication,
        own_ms=own,
        launches_per_step=profile.value("launches_per_step"),
        launch_overhead_pct=profile.value("launch_overhead_pct"),
        removable_pct=profile.value("removable_pct"),
        recommendation=None if verdict is None else verdict.recommendation,
        target=None if target.kind == "trace" else " ".join((target.name, *target.args)),
    )


def ranks_of(rows: Sequence[RankRow], *, is_one_run: bool = False) -> Ranks:
    """Ranks side by side with what sets them apart, or workloads with their verdicts.

    Files are ranks where each names another one and none another command, or where a person says
    that they are of one run.
    """
    known = [row for row in rows if row.problem is None]
    problems = [f"{row.name}: {row.problem}" for row in rows if row.problem is not None]
    numbers = [row.rank for row in known if row.rank is not None]
    distinct = len(set(numbers)) == len(numbers)
    targets = {row.target for row in known if row.target is not None}
    if not is_one_run and (len(numbers) < len(known) or not distinct or len(targets) > 1):
        by_name = tuple(sorted(rows, key=lambda row: row.name))
        headline = _workloads_headline(len(rows), known)
        return Ranks(by_name, (), None, headline, tuple(problems), kind="workloads")
    if not distinct:
        problems.append("several files say that they are of the same rank")
    skews = [skew for key in _SKEWS if (skew := _skew(known, key)) is not None]
    timed = [row for row in known if row.own_ms is not None]
    slowest = max(timed, key=lambda row: row.own_ms or 0.0, default=None)
    return Ranks(
        rows=tuple(sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.name))),
        skews=tuple(skews),
        slowest=None if slowest is None else slowest.name,
        headline=_headline(len(rows), len(known), slowest, skews),
        notes=tuple(problems),
    )


def _skew(rows: list[RankRow], key: str) -> Skew | None:
    values = [float(value) for row in rows if (value := getattr(row, key)) is not None]
    if len(values) < 2 or not any(values):
        return None
    return Skew(key, min(values), median(values), max(values))


def _read(count: int, known: int, noun: str) -> str:
    """`3 of 4 ranks`, or `4 ranks` where all could be read."""
    return plural(count, noun) if known == count else f"{known} of {plural(count, noun)}"


def _headline(count: int, known: int, slowest: RankRow | None, skews: list[Skew]) -> str:
    read = _read(count, known, "rank")
    own = next((skew for skew in skews if skew.key == "own_ms"), None)
    if slowest is None or slowest.own_ms is None or own is None:
        return f"{read} read; too few were timed to compare them."
    apart = own.pct or 0.0
    if apart < _LEAST_SKEW_PCT:
        return f"{read}, alike: outside of collectives they differ by {pct(apart)}."
    name = slowest.name if slowest.rank is None else f"rank {slowest.rank}"
    return (
        f"{read}; the slowest is {name}, which works {ms(slowest.own_ms)} per iteration, "
        f"{ms(own.high - own.low)} more than the fastest ({pct(apart)} of the median)."
    )


def _workloads_headline(count: int, known: Sequence[RankRow]) -> str:
    verdicts = Counter(row.recommendation for row in known if row.recommendation is not None)
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in verdicts.most_common()]
    read = _read(count, len(known), "workload")
    return f"{read}: {', '.join(counts)}." if counts else f"{read} read."
