"""The sentences of a comparison: what the batch size does to the gain, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Crossover, NearestPoint, Point
from launchscope.wording import listed, pct, pct_beside

SAME_WORK = (
    "the batch size does not change the shapes of the step's inputs, so every point measured the "
    "same work"
)


def crossover_sentence(found: Crossover) -> str:
    """One sentence on where the gain crosses the threshold."""
    threshold = found.threshold_pct
    limit = pct(threshold)
    pays, pays_not = found.pays, found.pays_not
    fixed = listed([f"{name} {value}" for name, value in found.parameters.items()])
    at = f" with {fixed}" if fixed else ""
    if found.status == "between" and pays and pays_not and found.batch_size:
        size = f"{found.batch_size:,.0f}"
        if found.batch_size < 10:
            size = f"{found.batch_size:.1f}".removesuffix(".0")
        by = "exposed launch overhead" if found.by == "exposed" else "the removed share"
        confirmed = "confirmed" if found.confirmed else "not confirmed"
        return (
            f"The gain falls below {limit} at a batch size of about {size}{at}: "
            f"{_at(pays, threshold)} and {_at(pays_not, threshold)} (interpolated from {by}, "
            f"{confirmed} by replays at both neighbors)."
        )
    if found.status == "above" and pays:
        return (
            f"The gain is at least {limit} at all measured sizes{at}: {_at(pays, threshold)}, the "
            "largest."
        )
    if found.status == "below" and pays_not:
        return (
            f"The gain is below {limit} at all measured sizes{at}: {_at(pays_not, threshold)}, the "
            "smallest."
        )
    if found.status == "rising" and pays and pays_not:
        return (
            f"The gain rises with the batch size{at}, from {_at(pays_not, threshold)} to "
            f"{_at(pays, threshold)}. No size was found above which a graph stops paying."
        )
    if found.status == "several":
        return f"The gain crosses {limit} more than once{at}: see the table."
    return (
        f"The size at which the gain falls below {limit}{at} is not known: fewer than two sizes "
        "have a gain."
    )


def _at(point: NearestPoint, threshold_pct: float) -> str:
    share = pct_beside(point.removable_pct, threshold_pct)
    if point.removable_pct < 0:
        share = f"a loss of {pct(-point.removable_pct)}"
    return f"{share} at {point.batch_size:,}"


def headline_of(points: Sequence[Point], crossovers: Sequence[Crossover], same: bool | None) -> str:
    """What the points say together, in a sentence or two."""
    measured = [point for point in points if point.profile is not None]
    if not measured:
        return "No point could be measured." if points else ""
    if same:
        return f"Nothing was compared: {SAME_WORK}."
    if all(p.profile is not None and p.profile.mode == "rehearsal" for p in measured):
        return (
            "Nothing ran on a GPU, so only the structure is known. Whether a graph pays depends on "
            "times."
        )
    return " ".join(crossover_sentence(found) for found in crossovers)
