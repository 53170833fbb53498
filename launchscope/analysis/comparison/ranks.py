"""One Profile per rank -> Ranks: rows, the slowest rank and the skew."""

from __future__ import annotations

from statistics import median

from launchscope.model import Profile
from launchscope.model.ranks import RankRow, Ranks, Skew

__all__ = ["rank_row", "ranks_of"]

_COMMUNICATION = ("nccldevkernel", "ncclkernel", "rccl", "nccl:")
_SKEWS = ("own_ms", "iteration_ms", "busy_ms", "communication_ms", "launches_per_step")
# Ranks closer than this are not told apart.
_LEAST_SKEW_PCT = 1.0


def rank_row(profile: Profile, name: str) -> RankRow:
    """The figures of one rank."""
    iteration = profile.value("iteration_ms")
    communication = None
    if profile.kernels:
        inside = (k for k in profile.kernels if k.name.lower().startswith(_COMMUNICATION))
        communication = sum(kernel.total_us for kernel in inside) / 1e3
    own = None
    if iteration is not None:
        own = max(iteration - (communication or 0.0), 0.0)
    verdict = profile.verdict
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
    )


def ranks_of(rows: list[RankRow]) -> Ranks:
    """Rows by rank (by name where no file says its rank), with what sets them apart."""
    ordered = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.name))
    known = [row for row in ordered if row.problem is None]
    skews = [skew for key in _SKEWS if (skew := _skew(known, key)) is not None]
    timed = [row for row in known if row.own_ms is not None]
    slowest = max(timed, key=lambda row: row.own_ms or 0.0, default=None)
    return Ranks(
        rows=tuple(ordered),
        skews=tuple(skews),
        slowest=None if slowest is None else slowest.name,
        headline=_headline(ordered, known, slowest, skews),
        notes=_notes(ordered),
    )


def _skew(rows: list[RankRow], key: str) -> Skew | None:
    values = [float(value) for row in rows if (value := getattr(row, key)) is not None]
    if len(values) < 2 or not any(values):
        return None
    return Skew(key, min(values), median(values), max(values))


def _headline(
    rows: list[RankRow], known: list[RankRow], slowest: RankRow | None, skews: list[Skew]
) -> str:
    if not known:
        return "None of the files could be read."
    noun = "rank" if len(rows) == 1 else "ranks"
    read = (
        f"{len(rows)} {noun}" if len(known) == len(rows) else f"{len(known)} of {len(rows)} {noun}"
    )
    own = next((skew for skew in skews if skew.key == "own_ms"), None)
    if slowest is None or own is None:
        return f"{read} read; too few were timed to compare them."
    apart = own.pct or 0.0
    if apart < _LEAST_SKEW_PCT:
        return f"{read}, alike: outside of collectives they differ by {apart:.1f} %."
    name = slowest.name if slowest.rank is None else f"rank {slowest.rank}"
    return (
        f"{read}; the slowest is {name} with {slowest.own_ms:.3g} ms of its own an iteration, "
        f"{own.high - own.low:.3g} ms more than the fastest ({apart:.0f} % of the median)."
    )


def _notes(rows: list[RankRow]) -> tuple[str, ...]:
    said = [f"{row.name}: {row.problem}" for row in rows if row.problem is not None]
    numbers = [row.rank for row in rows if row.rank is not None]
    if len(numbers) != len(set(numbers)):
        said.append("several files say that they are of the same rank")
    return tuple(said)
