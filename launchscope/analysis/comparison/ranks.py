"""Profiles side by side -> Ranks: rows, the slowest rank and the skew; or plain files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from launchscope.model import Profile
from launchscope.model.ranks import RankRow, Ranks, Skew, SlowestBy
from launchscope.wording import listed, ms, pct, plural

_SKEWS = (
    "own_ms", "iteration_ms", "busy_ms", "communication_ms", "exposed_communication_ms",
    "launch_overhead_ms", "launches_per_step",
    "device_ops_per_step",
)  # fmt: skip
_WORK: dict[SlowestBy, str] = {
    "compute_ms": "computation on its GPU",
    "launch_overhead_ms": "GPU idle, waiting for launches",
    "data_wait_ms": "waiting for data",
}
# Ranks that differ by less than this are alike.
_LEAST_SKEW_PCT = 1.0


def rank_row(profile: Profile, name: str) -> RankRow:
    """The figures of one file."""
    iteration, exposed = profile.value("iteration_ms"), profile.value("exposed_communication_ms")
    world_size = profile.environment.world_size
    verdict, target = profile.verdict, profile.target
    return RankRow(
        name=name,
        rank=profile.facts.rank,
        iteration_ms=iteration,
        busy_ms=profile.value("iteration_busy_ms"),
        communication_ms=profile.value("communication_ms"),
        exposed_communication_ms=exposed,
        own_ms=None if iteration is None or exposed is None else max(iteration - exposed, 0.0),
        launches_per_step=profile.value("launches_per_step"),
        device_ops_per_step=profile.value("device_ops_per_step"),
        launch_overhead_pct=profile.value("launch_overhead_pct"),
        launch_overhead_ms=profile.value("launch_overhead_ms"),
        data_wait_ms=profile.value("data_wait_ms"),
        removable_pct=profile.value("removable_pct"),
        recommendation=None if verdict is None else verdict.recommendation,
        target=None if target.kind == "trace" else " ".join((target.name, *target.args)),
        world_size=world_size if world_size > 1 else None,
    )


def ranks_of(rows: Sequence[RankRow], *, is_one_run: bool = False) -> Ranks:
    """Ranks side by side with their differences, or files with their verdicts. Files are ranks of
    one run if two or more each name another rank and all the same command and number of ranks, or
    if the person says so."""
    known = [row for row in rows if row.problem is None]
    problems = [f"{row.name}: {row.problem}" for row in rows if row.problem is not None]
    distinct = len({row.rank for row in known if row.rank is not None}) == len(known)
    targets = {row.target for row in known if row.target is not None}
    sizes = {row.world_size for row in known if row.world_size is not None}
    in_one_run = len(known) > 1 and distinct and len(targets) < 2 and len(sizes) < 2
    if len(sizes) > 1:
        counts = listed([f"{size:,}" for size in sorted(sizes)])
        problems.append(f"the files are of runs with {counts} ranks")
    if not is_one_run and not in_one_run:
        by_name = tuple(sorted(rows, key=lambda row: row.name))
        headline = _files_headline(len(rows), known)
        return Ranks(by_name, (), None, headline, tuple(problems), kind="files")
    numbers = [row.rank for row in known if row.rank is not None]
    if len(set(numbers)) < len(numbers):
        problems.append("several files name the same rank")
    here, size = len(set(numbers)), max(sizes, default=0)
    if len(sizes) == 1 and here < size and len(numbers) == len(known):
        problems.append(f"the files are of {here:,} of the run's {size:,} ranks")
    by_rank = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.name))
    skews = []
    for key in _SKEWS:
        values = [float(value) for row in known if (value := getattr(row, key)) is not None]
        if len(values) > 1 and any(values):
            skews.append(Skew(key, min(values), median(values), max(values)))
    timed = [row for row in known if row.own_ms is not None]
    slowest = max(timed, key=_own_ms, default=None)
    headline = _headline(len(rows), known, slowest, skews)
    by = None if slowest is None else _slowest_by(slowest, timed)
    if by is not None:
        headline += f" The main cause is {_WORK[by]}."
    name = None if slowest is None else slowest.name
    return Ranks(tuple(by_rank), tuple(skews), name, headline, tuple(problems), slowest_by=by)


def _slowest_by(slowest: RankRow, rows: Sequence[RankRow]) -> SlowestBy | None:
    """What makes up at least half of the time that a rank works longer than the others do."""
    others = [row for row in rows if row is not slowest]
    if not others or slowest.own_ms is None:
        return None
    own = [row.own_ms for row in others if row.own_ms is not None]
    more = slowest.own_ms - median(own)
    if more * 100.0 < _LEAST_SKEW_PCT * median(own):
        return None
    longer: dict[SlowestBy, float] = {}
    for key in _WORK:
        usual = [value for row in others if (value := getattr(row, key)) is not None]
        mine = getattr(slowest, key)
        if usual and mine is not None:
            longer[key] = mine - median(usual)
    causes = [key for key in longer if longer[key] >= more / 2]
    # What the others launch while their GPUs wait for this rank is no exposed overhead of theirs,
    # so all of this rank's own counts as more: another cause is the better one.
    return max(causes, key=lambda key: (key != "launch_overhead_ms", longer[key]), default=None)


def _own_ms(row: RankRow) -> float:
    return row.own_ms or 0.0


def _name(row: RankRow) -> str:
    return row.name if row.rank is None else f"rank {row.rank}"


def _read(count: int, known: int, noun: str) -> str:
    """`3 of 4 ranks`, or `4 ranks` where all could be read."""
    return plural(count, noun) if known == count else f"{known} of {plural(count, noun)}"


def _headline(
    count: int, known: Sequence[RankRow], slowest: RankRow | None, skews: list[Skew]
) -> str:
    read = _read(count, len(known), "rank")
    own = next((skew for skew in skews if skew.key == "own_ms"), None)
    if slowest is None or slowest.own_ms is None or own is None:
        return f"{read} read; too few were timed to compare them."
    skew_pct = own.pct or 0.0
    if skew_pct < _LEAST_SKEW_PCT:
        return f"{read}: outside of collectives they differ by only {pct(skew_pct)}."
    return (
        f"{read}; the slowest is {_name(slowest)}, which works {ms(slowest.own_ms)} per iteration, "
        f"{ms(own.high - own.low)} more than the fastest ({pct(skew_pct)} of the median)."
    )


def _files_headline(count: int, known: Sequence[RankRow]) -> str:
    verdicts = Counter(row.recommendation for row in known if row.recommendation is not None)
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in verdicts.most_common()]
    read = _read(count, len(known), "file")
    return f"{read}: {', '.join(counts)}." if counts else f"{read} read."
