"""Everything that prevents the capture of a step, in one list for headline, advice and verdict."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.analysis.blockers import in_lbfgs
from launchscope.model import Profile
from launchscope.rules.profile_queries import (
    decides_on_the_host,
    forward_unseen,
    on_legacy_stream,
)
from launchscope.rules.shape_change import branches, calls_change, distinct_inputs, growth
from launchscope.wording import listed, place

PADDING = "padding"
GROWTH = "growth"


@dataclass(frozen=True)
class Obstacle:
    """`clause` ends "worth a CUDA graph once ..."; `todo` is a step of the instructions."""

    kind: str
    code: str  # of the rule that explains it
    clause: str
    todo: str


def obstacles(profile: Profile) -> list[Obstacle]:
    """Everything to fix before one graph can serve the step, in the order to fix it."""
    found = []
    captured = profile.replay.status == "measured"
    lines = "" if captured else blocking_lines(profile)
    if lines:
        be = "are" if " and " in lines else "is"
        found.append(
            Obstacle(
                "blockers",
                "LS030",
                f"{lines} {be} fixed",
                f"Fix {lines} (launchscope rules LS030).",
            )
        )
    if forward_unseen(profile):
        found.append(
            Obstacle(
                "forward",
                "LS043",
                "the marked step includes its forward",
                "Put `with launchscope.step():` around the whole step, forward included, and "
                "profile again (launchscope rules LS043).",
            )
        )
    if on_legacy_stream(profile) and not captured:
        found.append(
            Obstacle(
                "legacy",
                "LS038",
                "no kernel runs on the legacy default stream",
                "Launch the kernels of the legacy default stream on PyTorch's current stream "
                "(launchscope rules LS038).",
            )
        )
    if profile.shapes.stable is not False:
        return found
    if branches(profile) and decides_on_the_host(profile):
        found.append(
            Obstacle(
                "branch",
                "LS011",
                "the step of LBFGS stays eager",
                "Leave the step of LBFGS eager: how often it calls the closure depends on values. "
                "Graph the model's forward and backward inside the closure "
                "(launchscope rules LS011).",
            )
        )
    elif calls_change(profile):
        found.append(
            Obstacle(
                "calls",
                "LS011",
                "every step calls the model the same number of times",
                "Make the same number of calls in every step and mask what is beyond the end, or "
                "capture the forward alone (launchscope rules LS011).",
            )
        )
    elif branches(profile):
        found.append(
            Obstacle(
                "branch",
                "LS011",
                "the branch that depends on data is replaced",
                "Replace the branch that depends on data with torch.where or a mask, or capture "
                "one graph per path (launchscope rules LS011).",
            )
        )
    grown = growth(profile)
    if grown is not None:
        found.append(
            Obstacle(
                GROWTH,
                "LS010",
                "the inputs that grow by one in every step keep one size (a static cache)",
                f"Preallocate the inputs that grow ({grown}) to the longest length. Write each "
                "step in place at a position that is a tensor, and mask what is not filled yet "
                "(launchscope rules LS010).",
            )
        )
    elif distinct_inputs(profile) > 1:
        found.append(
            Obstacle(
                PADDING,
                "LS010",
                "the inputs are padded to a few sizes",
                "Pad the inputs to a few fixed sizes, with one graph for each size "
                "(launchscope rules LS010).",
            )
        )
    return found


def clauses(found: list[Obstacle]) -> str:
    return listed([obstacle.clause for obstacle in found])


def blocking_lines(profile: Profile) -> str:
    """The lines to fix, up to three by name; without those of a step that stays eager."""
    eager = profile.shapes.stable is False and branches(profile)
    optimizers = (profile.facts.optimizer_classes or ()) if eager else ()
    blockers = [b for b in profile.blockers if not in_lbfgs(b.op, b.code, optimizers)]
    lines = list(dict.fromkeys(place(b.where) if b.where else b.op for b in blockers))
    if len(lines) > 3:
        return f"{lines[0]} and {len(lines) - 1} more"
    return listed(lines)
