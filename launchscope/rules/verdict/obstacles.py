"""Everything that prevents the capture of a step, in one list for headline, advice and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from launchscope.model import Blocker, Profile
from launchscope.reason_text import as_written
from launchscope.rules.findings.wrong_result import codes_of
from launchscope.rules.profile_queries import on_legacy_stream
from launchscope.rules.shape_change import Growth, branches, calls_seen, distinct_inputs, growth
from launchscope.wording import listed, place

ObstacleKind = Literal[
    "blockers", "forward", "legacy", "frozen", "lbfgs", "calls", "branch", "growth", "padding"
]


class Obstacle(Struct, frozen=True):
    """What to fix before one graph can serve the step, and the rule that explains it."""

    kind: ObstacleKind
    code: str
    clause: str  # completes "worth a CUDA graph once ..."
    fix: str


_KNOWN: dict[ObstacleKind, tuple[str, str, str]] = {
    "forward": (
        "LS030",
        "the marked step includes its forward",
        "Put `with launchscope.step():` around the whole step, forward included, and profile again",
    ),
    "legacy": (
        "LS030",
        "no kernel runs on the legacy default stream",
        "Launch the kernels of the legacy default stream on PyTorch's current stream",
    ),
    "lbfgs": (
        "LS011",
        "the step of LBFGS stays eager",
        "Leave the step of LBFGS eager: how often it calls the closure depends on values. Graph "
        "the model's forward and backward inside the closure (torch.cuda.make_graphed_callables)",
    ),
    "calls": (
        "LS011",
        "every step calls the model the same number of times",
        "Make the same number of calls in every step and mask what is beyond the end, or capture "
        "the forward alone (torch.cuda.make_graphed_callables)",
    ),
    "branch": (
        "LS011",
        "the data-dependent branch is replaced",
        "Replace the data-dependent branch with torch.where or a mask, or capture one graph per "
        "path",
    ),
    "padding": (
        "LS010",
        "the inputs are padded to a few sizes",
        "Pad the inputs to a few fixed sizes, with one graph for each size",
    ),
}


def obstacles(profile: Profile) -> Iterator[Obstacle]:
    """Everything to fix before one graph can serve the step, in the order to fix it."""
    captured, step = profile.replay.status == "measured", profile.step
    lines = [] if captured else _blocking_lines(profile)
    if lines:
        named = f"{lines[0]} and {len(lines) - 1} more" if len(lines) > 3 else listed(lines)
        be = "is" if len(lines) == 1 else "are"
        yield Obstacle("blockers", "LS030", f"{named} {be} fixed", f"Fix {named}")
    if profile.mode != "trace" and step is not None and step.period[:1] == ("backward",):
        yield _known("forward")
    if on_legacy_stream(profile) and not captured:
        yield _known("legacy")
    if profile.mode == "rehearsal" and profile.replay.correct.causes:
        yield _frozen(profile)
    if profile.shapes.stable is not False:
        return
    if branches(profile):  # steps with equal inputs run different ops
        uses_lbfgs = "LBFGS" in (profile.facts.optimizer_classes or ())
        calls_differ = len(calls_seen(profile)) > 1
        yield _known("lbfgs" if uses_lbfgs else "calls" if calls_differ else "branch")
    if grown := growth(profile):
        yield _static_cache(grown)
    elif profile.replay.shapes:
        yield Obstacle(
            "padding",
            "LS010",
            "each frequent shape has a graph of its own",
            "Capture one graph for each frequent shape. Pad other inputs to one of these, or run "
            "their steps eagerly",
        )
    elif distinct_inputs(profile) > 1:
        yield _known("padding")


def _known(kind: ObstacleKind) -> Obstacle:
    return Obstacle(kind, *_KNOWN[kind])


def _static_cache(grown: Growth) -> Obstacle:
    return Obstacle(
        "growth",
        "LS010",
        "the inputs that grow by one in every step keep one size (a static cache)",
        f"Use a static cache: preallocate dimension {grown.dimension} of the inputs that grow "
        f"({grown}) to the longest length. Write each step in place at a position that is a "
        "tensor, and mask what is not filled yet; of transformers, pass "
        'cache_implementation="static" to model.generate(), or a StaticCache',
    )


def obstacle_of(profile: Profile, *kinds: ObstacleKind) -> Obstacle | None:
    """The first obstacle of these kinds."""
    return next((found for found in obstacles(profile) if found.kind in kinds), None)


def clauses(found: Iterable[Obstacle]) -> str:
    return listed([obstacle.clause for obstacle in found])


def _blocking_lines(profile: Profile) -> list[str]:
    """The lines to fix, without those of a step that stays eager."""
    eager = profile.shapes.stable is False and branches(profile)
    blockers = [b for b in profile.blockers if not (eager and b.inside == "lbfgs")]
    return list(dict.fromkeys(map(_line_of, blockers)))


def _line_of(blocker: Blocker) -> str:
    """`train.py:41`, `models/vit.py:7 (called at train.py:41)`, or the op without a line."""
    if blocker.where is None:
        return as_written(blocker.op)
    own, library = place(blocker.where), blocker.library
    if library is None or library.where == blocker.where:
        return own
    return f"{place(library.where)} (called at {own})"


def freezes_rate(profile: Profile) -> bool:
    """Whether a rehearsal saw a learning rate change, which is an obstacle then."""
    causes = profile.replay.correct.causes if profile.mode == "rehearsal" else ()
    return any(cause.kind == "learning_rate" for cause in causes)


def _frozen(profile: Profile) -> Obstacle:
    others = [c for c in profile.replay.correct.causes if c.kind != "learning_rate"]
    places = [place(cause.where) for cause in others if cause.where]
    named = listed(list(dict.fromkeys(places))) or "the optimizer"
    what = ["the learning rate"] if freezes_rate(profile) else []
    what += [f"what changes at {named}"] if others else []
    clause = f"{listed(what)} {'is' if len(what) == 1 else 'are'} kept in tensors on the GPU"
    code = codes_of(profile.replay.correct)[0]
    return Obstacle("frozen", code, clause, f"Keep {listed(what)} in tensors on the GPU")
