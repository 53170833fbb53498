"""Everything that prevents the capture of a step, in one list for headline, advice and verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from launchscope.analysis.blockers import in_lbfgs
from launchscope.model import Profile
from launchscope.op_names import as_written
from launchscope.rules.profile_queries import (
    decides_on_the_host,
    forward_unseen,
    on_legacy_stream,
)
from launchscope.rules.shape_change import branches, calls_change, distinct_inputs, growth
from launchscope.wording import listed, place

ObstacleKind = Literal[
    "blockers", "forward", "legacy", "lbfgs", "calls", "branch", "growth", "padding"
]


@dataclass(frozen=True)
class Obstacle:
    """What to fix before one graph can serve the step, and the rule that explains it.

    `clause` completes "worth a CUDA graph once ...".
    """

    kind: ObstacleKind
    code: str
    clause: str
    fix: str


_FORWARD = Obstacle(
    "forward",
    "LS043",
    "the marked step includes its forward",
    "Put `with launchscope.step():` around the whole step, forward included, and profile again",
)
_LEGACY = Obstacle(
    "legacy",
    "LS038",
    "no kernel runs on the legacy default stream",
    "Launch the kernels of the legacy default stream on PyTorch's current stream",
)
_LBFGS = Obstacle(
    "lbfgs",
    "LS011",
    "the step of LBFGS stays eager",
    "Leave the step of LBFGS eager: how often it calls the closure depends on values. Graph the "
    "model's forward and backward inside the closure",
)
_CALLS = Obstacle(
    "calls",
    "LS011",
    "every step calls the model the same number of times",
    "Make the same number of calls in every step and mask what is beyond the end, or capture the "
    "forward alone",
)
_BRANCH = Obstacle(
    "branch",
    "LS011",
    "the branch that depends on data is replaced",
    "Replace the branch that depends on data with torch.where or a mask, or capture one graph per "
    "path",
)
_PADDING = Obstacle(
    "padding",
    "LS010",
    "the inputs are padded to a few sizes",
    "Pad the inputs to a few fixed sizes, with one graph for each size",
)


def obstacles(profile: Profile) -> list[Obstacle]:
    """Everything to fix before one graph can serve the step, in the order to fix it."""
    return list(_obstacles(profile))


def _obstacles(profile: Profile) -> Iterator[Obstacle]:
    captured = profile.replay.status == "measured"
    lines = "" if captured else blocking_lines(profile)
    if lines:
        be = "are" if " and " in lines else "is"
        yield Obstacle("blockers", "LS030", f"{lines} {be} fixed", f"Fix {lines}")
    if forward_unseen(profile):
        yield _FORWARD
    if on_legacy_stream(profile) and not captured:
        yield _LEGACY
    if profile.shapes.stable is not False:
        return
    if branches(profile):
        if decides_on_the_host(profile):
            yield _LBFGS
        else:
            yield _CALLS if calls_change(profile) else _BRANCH
    grown = growth(profile)
    if grown is not None:
        yield Obstacle(
            "growth",
            "LS010",
            "the inputs that grow by one in every step keep one size (a static cache)",
            f"Preallocate the inputs that grow ({grown}) to the longest length. Write each step "
            "in place at a position that is a tensor, and mask what is not filled yet",
        )
    elif distinct_inputs(profile) > 1:
        yield _PADDING


def clauses(found: list[Obstacle]) -> str:
    return listed([obstacle.clause for obstacle in found])


def blocking_lines(profile: Profile) -> str:
    """The lines to fix, up to three by name; without those of a step that stays eager."""
    eager = profile.shapes.stable is False and branches(profile)
    optimizers = (profile.facts.optimizer_classes or ()) if eager else ()
    blockers = [b for b in profile.blockers if not in_lbfgs(b.op, b.code, optimizers)]
    lines = list(dict.fromkeys(place(b.where) if b.where else as_written(b.op) for b in blockers))
    return f"{lines[0]} and {len(lines) - 1} more" if len(lines) > 3 else listed(lines)
