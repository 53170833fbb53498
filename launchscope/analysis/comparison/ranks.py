"""Profiles side by side -> Ranks: rows, the slowest rank and the skew, or workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from launchscope.model import Profile
from launchscope.model.comparison import RankRow, Ranks, Skew
from launchscope.wording import ms, pct, plural

_COMMUNICATION = ("nccldevkernel", "ncclkernel", "rccl", "nccl:")
_SKEWS = ("own_ms", "iteration_ms", "busy_ms", "communication_ms", "launches_per_step")
# Ranks that differ by less than this are alike.
_LEAST_SKEW_PCT = 1.0


def rank_row(profile: Profile, name: str) -> RankRow:
    """The figures of one file."""
    iteration = profile.value("iteration_ms")
    inside = [k.total_us for k in profile.kernels if k.name.lower().startswith(_COMMUNICATION)]
    communication = sum(inside) / 1e3
    verdict, target = profile.verdict, profile.target
    return RankRow(
        name=name,
        rank=profile.facts.rank,
        iteration_ms=iteration,
        busy_ms=profile.value("iteration_busy_ms"),
        communication_ms=communication if profile.kernels else None,
        own_ms=None if iteration is None else max(iteration - communication, 0.0),
        launches_per_step=profile.value("launches_per_step"),
        launch_overhead_pct=profile.value("launch_overhead_pct"),
        removable_pct=profile.value("removable_pct"),
        recommendation=None if verdict is None else verdict.recommendation,
        target=None if target.kind == "trace" else " ".join((target.name, *target.args)),
    )


def ranks_of(rows: Sequence[RankRow], *, is_one_run: bool = False) -> Ranks:
    """Ranks side by side with their differences, or workloads with their verdicts. Files are ranks
    of one run if each names another rank and all the same command, or if the person says so."""
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
        problems.append("several files name the same rank")
    skews = []
    for key in _SKEWS:
        values = [float(value) for row in known if (value := getattr(row, key)) is not None]
        if len(values) > 1 and any(values):
            skews.append(Skew(key, min(values), median(values), max(values)))
    timed = [row for row in known if row.own_ms is not None]
    slowest = max(timed, key=lambda row: row.own_ms or 0.0, default=None)
    by_rank = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.name))
    headline = _headline(len(rows), len(known), slowest, skews)
    name = None if slowest is None else slowest.name
    return Ranks(tuple(by_rank), tuple(skews), name, headline, tuple(problems))


def _read(count: int, known: int, noun: str) -> str:
    """`3 of 4 ranks`, or `4 ranks` where all could be read."""
    return plural(count, noun) if known == count else f"{known} of {plural(count, noun)}"


def _headline(count: int, known: int, slowest: RankRow | None, skews: list[Skew]) -> str:
    read = _read(count, known, "rank")
    own = next((skew for skew in skews if skew.key == "own_ms"), None)
    if slowest is None or slowest.own_ms is None or own is None:
        return f"{read} read; too few were timed to compare them."
    skew_pct = own.pct or 0.0
    if skew_pct < _LEAST_SKEW_PCT:
        return f"{read}: outside of collectives they differ by only {pct(skew_pct)}."
    name = slowest.name if slowest.rank is None else f"rank {slowest.rank}"
    return (
        f"{read}; the slowest is {name}, which works {ms(slowest.own_ms)} per iteration, "
        f"{ms(own.high - own.low)} more than the fastest ({pct(skew_pct)} of the median)."
    )


def _workloads_headline(count: int, known: Sequence[RankRow]) -> str:
    verdicts = Counter(row.recommendation for row in known if row.recommendation is not None)
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in verdicts.most_common()]
    read = _read(count, len(known), "workload")
    return f"{read}: {', '.join(counts)}." if counts else f"{read} read."
