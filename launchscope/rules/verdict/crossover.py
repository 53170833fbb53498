"""The sentences of a comparison: what the batch size does to the gain, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Crossover, NearestPoint, Point
from launchscope.wording import listed, pct, pct_beside

SAME_WORK = (
    "The batch size does not change the shapes of the step's inputs, so every point measured the "
    "same work."
)


def crossover_sentence(found: Crossover) -> str:
    """One sentence on where the gain crosses the threshold."""
    limit = pct(found.threshold_pct)
    fixed = listed([f"{name} {value}" for name, value in found.parameters.items()])
    at = f" with {fixed}" if fixed else ""
    pays, pays_not = (_at(point, found.threshold_pct) for point in (found.pays, found.pays_not))
    match found.status:
        case "between":
            size = found.batch_size or 0.0
            about = f"{size:.1f}".removesuffix(".0") if size < 10 else f"{size:,.0f}"
            by = "exposed launch overhead" if found.by == "exposed" else "the removed share"
            confirmed = "confirmed" if found.confirmed else "not confirmed"
            return (
                f"The gain falls below {limit} at a batch size of about {about}{at}: {pays} and "
                f"{pays_not} (interpolated from {by}, {confirmed} by replays at both neighbors)."
            )
        case "above":
            return f"The gain is at least {limit} at all measured sizes{at}: {pays}, the largest."
        case "below":
            return f"The gain is below {limit} at all measured sizes{at}: {pays_not}, the smallest."
        case "rising":
            return (
                f"The gain rises with the batch size{at}, from {pays_not} to {pays}. No size was "
                "found above which a graph stops paying."
            )
        case "several":
            return f"The gain crosses {limit} more than once{at}: see the table."
        case "unknown":
            return (
                f"The size at which the gain falls below {limit}{at} is not known: fewer than two "
                "sizes have a gain."
            )


def _at(point: NearestPoint | None, threshold_pct: float) -> str:
    """A size with its gain; nothing for a status that has no such size."""
    if point is None:
        return ""
    share = pct_beside(point.removable_pct, threshold_pct)
    if point.removable_pct < 0:
        share = f"a loss of {pct(-point.removable_pct)}"
    return f"{share} at {point.batch_size:,}"


def headline_of(points: Sequence[Point], crossovers: Sequence[Crossover], same: bool | None) -> str:
    """What the points say together, in a sentence or two."""
    measured = [point.profile for point in points if point.profile is not None]
    if not measured:
        return "No point could be measured." if points else ""
    if same:
        return f"Nothing was compared. {SAME_WORK}"
    if all(profile.mode == "rehearsal" for profile in measured):
        return (
            "Nothing ran on a GPU, so only the structure is known. Whether a graph pays depends on "
            "times."
        )
    return " ".join(crossover_sentence(found) for found in crossovers)
