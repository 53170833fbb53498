"""Every sentence of the rules is correct and true at the edges of the figures that it mentions.

Profiles of every kind are changed one figure at a time to 0, 1, a negative value, none, far below
and far above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, product
from typing import Any

import pytest
from msgspec.structs import replace

from launchscope.model import (
    Crossover,
    Metric,
    PointFailure,
    Profile,
    Reason,
    Replay,
    Shapes,
    Strategies,
    Strategy,
    Trajectory,
    UnusedGpu,
    Verdict,
)
from launchscope.rules import advise
from launchscope.rules.profile_queries import gain
from launchscope.rules.verdict.crossover import crossover_sentence
from launchscope.rules.verdict.strategies import advised as best_strategy
from tests.rules.cases import all_cases, replayed, shapes
from tests.rules.profiles import (
    SUBTRACTED,
    item_blocker,
    predicted,
    profile,
    rehearsal,
    share,
)
from tests.rules.sentences import complaints

PADDED = shapes("(8, 97) int64", "(8, 101) int64", steps=2)
MANY = shapes(*(f"(8, {n}) int64" for n in range(20)), steps=2)


@cache
def bases() -> dict[str, Profile]:
    """Profiles of every kind: those in which a rule fires, and others for the headlines."""
    trace = predicted(mode="trace", replay=Replay("skipped", Reason("trace_only")))
    failed = Reason("out_of_memory", {"kind": "OutOfMemoryError", "error": "CUDA out of memory"})
    unsure = {"removable_pct": share(20.0, -3.0, 43.0)}
    return {
        **{f"{rule.code} {case.says}": case.fires for rule, case in all_cases()},
        "blocked rehearsal": rehearsal(blockers=(item_blocker(),)),
        "padded rehearsal": rehearsal(shapes=PADDED),
        "unstable rehearsal": rehearsal(shapes=MANY),
        "uninspected rehearsal": rehearsal(shapes=Shapes(None)),
        "trace": trace,
        "unsure trace": replace(trace, metrics=trace.metrics | unsure),
        "failed": predicted(replay=Replay("failed", failed)),
        "padded": predicted(shapes=PADDED),
        "many shapes": predicted(shapes=MANY, blockers=(item_blocker(),)),
        "part": profile(replay=replayed(scope="forward_backward"), blockers=(item_blocker(),)),
        "subtracted": profile(
            metrics={"iteration_busy_ms": 12.0, "replayed_iteration_ms": SUBTRACTED}
        ),
        "untimed": profile(metrics={"removable_pct": None, "iteration_ms": None}),
        "gain unknown": profile(metrics={"removable_pct": None}),
    }


SHARE = (None, 0.0, 1.0, 14.96, 15.0, 15.04, 50.0, 99.9, 100.0)
TIME = (None, 0.0, 1e-6, 1.0, 8.64, 9.39, 11.0, 1e7)
SIGNED_TIME = (*TIME, -1.0, -508.0)
COUNT = (None, 0.0, 1.0, 1.5, 2.0, 1e6)
ERROR = (None, 0.0, -0.01, 11.0, -14.0, 1e12)
# What the analysis can give for each figure. A share of a whole is at most 100, and a time or a
# count is not negative unless it is a difference.
METRICS: dict[str, tuple[float | None, ...]] = {
    **dict.fromkeys(("iteration_ms", "step_ms", "host_ms", "launch_api_ms"), TIME),
    **dict.fromkeys(("blocked_launch_ms", "data_wait_ms", "sync_wait_ms"), TIME),
    **dict.fromkeys(("predicted_replay_ms", "iteration_busy_ms", "gpu_busy_ms"), TIME),
    **dict.fromkeys(("framework_ms", "launch_call_ms"), SIGNED_TIME),
    **dict.fromkeys(("launch_share_pct", "step_overhead_pct"), SHARE),
    "gpu_idle_ms": SIGNED_TIME,
    "exposed_communication_ms": TIME,
    "launch_overhead_pct": (*SHARE, -3.0),
    "launches_per_step": COUNT,
    "syncs_per_step": COUNT,
    "graph_launches_per_step": COUNT,
    "device_ops_per_step": COUNT,
    "graph_memory_mib": (None, 0.0, 1.0, 1024.0, 1e5),
    "break_even_steps": (None, 0.0, 0.4, 1.0, 14.6, 15.4, 1e9),
}
FACTS: dict[str, tuple[Any, ...]] = {
    "iteration_check_pct": ERROR,
    **dict.fromkeys(("graph_kernel_share_pct", "large_kernel_share_pct"), SHARE),
    "has_operators": (None, False, True),
    "join_coverage_pct": SHARE,
    "median_kernel_us": (None, 0.0, 0.5, 1.0, 1e6),
    "timing_steps": (None, 0, 1, 2, 9, 10, 10**6),
    "legacy_stream_kernels": (None, 0, 1, 400),
    "removable_step_pct": (None, 0.0, -5.0, 15.0, 100.0),
    "unused_gpu": (
        None,
        UnusedGpu("script"),
        UnusedGpu("hidden"),
        UnusedGpu("build"),
    ),
    "unsure_idle_pct": (None, 0.0, 0.3, 40.0, 99.0),
    "unusual_idle_pct": (None, 0.0, 0.3, 40.0, 99.0),
    "gain_unknown": (
        None,
        Reason("file_cut"),
        Reason("launches_unknown"),
        Reason("graph_capture"),
        Reason("no_step"),
        Reason("whole_span"),
        Reason("file_damaged", {"events": 1}),
        Reason("work_lost", {"found": 1, "calls": 9}),
        *(Reason("few_launches", {"launches": launches}) for launches in (0.0, 1.0, 2.5)),
        Reason("pauses", {"pauses": 1, "gaps": 1}),
        Reason("waits_for_ranks", {"share_pct": 91.3}),
        Reason("set_up", {"share_pct": 100.0}),
        Reason("clocks_disagree"),
        Reason("trace_contradicts", {"excess_pct": 3.1}),
        *(Reason("no_durations", {"short": short, "works": 2}) for short in (1, 2)),
    ),
}
GAINS = (None, 0.0, 0.01, -0.01, 1.0, -8.0, 14.96, 15.0, 15.04, 62.5, 89.9, 100.0, -1e15)
MARGINS = (None, 0.0, 0.5, 20.0, 1e6)
THRESHOLDS = (0.0, 1.0, 15.0, 90.0, 100.0)


def changed(base: Profile, name: str, value: Any) -> Profile:
    """The profile with one figure of this value."""
    if name not in METRICS:
        return replace(base, facts=replace(base.facts, **{name: value}))
    unit = base.metrics[name].unit if name in base.metrics else "ms"
    known = base.metrics | {name: Metric(value, unit)}
    known["launch_overhead_ms"] = Metric(overhead_ms(known), "ms")
    made = replace(base, metrics=known)
    return made if name != "iteration_ms" else with_gain(made, made.value("removable_pct"), 1.0)


def overhead_ms(known: dict[str, Metric]) -> float | None:
    """The launch overhead that fits its share of the iteration."""
    part, whole = known["launch_overhead_pct"].value, known["iteration_ms"].value
    return None if part is None or whole is None else part * whole / 100


def with_gain(base: Profile, removable: float | None, margin: float | None) -> Profile:
    """The profile with this gain, its projection and its bounds."""
    iteration = base.value("iteration_ms")
    after = None
    if iteration is not None and removable is not None:
        after = iteration * (1 - removable / 100)
    known = {
        "removable_pct": Metric(removable, "%")
        if removable is None or margin is None
        else share(removable, removable - margin, removable + margin),
        "replayed_iteration_ms": Metric(after, "ms"),
        "iteration_speedup": Metric(iteration / after if iteration and after else None, "x"),
    }
    return replace(base, metrics=base.metrics | known)


def one_at_a_time() -> Iterator[Profile]:
    """Every kind of Profile, and one in ten of its edges: other ones in the next kind."""
    for number, base in enumerate(bases().values()):
        yield base
        yield from islice(edges(base), number % 10, None, 10)


def edges(base: Profile) -> Iterator[Profile]:
    for name, values in (METRICS | FACTS).items():
        yield from (changed(base, name, value) for value in values)
    for removable, margin in product(GAINS, MARGINS):
        yield with_gain(base, removable, margin)
    for threshold, removable in product(THRESHOLDS, (None, 0.0, 10.0, 62.5)):
        yield replace(with_gain(base, removable, 0.5), threshold_pct=threshold)


def wrong_sentences(made: Profile) -> Iterator[str]:
    """What is wrong with each sentence of the rules about this Profile."""
    advised = advise(made)
    assert advised.verdict is not None
    for finding in advised.findings:
        said = f"{finding.title}. {finding.advice}"
        found = [
            *complaints(finding.title, title=True),
            *contradictions(said, made, advised.verdict),
        ]
        found += complaints(finding.advice) if finding.advice else ()
        yield from (f"{finding.code}: {complaint}: {said}" for complaint in found)
    for text in (advised.verdict.headline, *advised.verdict.instructions):
        found = [*complaints(text), *contradictions(text, made, advised.verdict)]
        yield from (f"verdict: {complaint}: {text}" for complaint in found)


def contradictions(said: str, made: Profile, verdict: Verdict) -> list[str]:
    """The claims in these sentences that the figures of the profile do not bear out."""
    return [
        claim
        for claim, holds in CLAIMS.items()
        if claim.lower() in said.lower() and not holds(made, verdict)
    ]


def idle_pct(made: Profile) -> float:
    return 100 * (made.value("gpu_idle_ms") or 0) / (made.value("iteration_ms") or 1)


def removed(made: Profile) -> float | None:
    found = gain(made)
    return None if found is None else found.removable_pct


def gains(made: Profile) -> bool:
    return (removed(made) or 0) > 0


def reaches(made: Profile) -> bool:
    found = removed(made)
    return found is not None and found >= made.threshold_pct


CLAIMS: dict[str, Callable[[Profile, Verdict], bool]] = {
    "run ahead of the GPU": lambda made, _: 0 <= idle_pct(made) < 15,
    "reaches your threshold": lambda made, _: reaches(made),
    "does not reach your threshold": lambda made, _: (
        removed(made) is not None and not reaches(made)
    ),
    "gain of a replay agrees": lambda made, _: (
        reaches(made) is ((made.value("launch_share_pct") or 0) > 15)
    ),
    "the gain of a replay is not known": lambda made, _: gain(made) is None,
    "below your threshold": lambda made, _: not reaches(made),
    "graph launches take": lambda made, _: made.value("launches_per_step") == 0,
    "launch calls take": lambda made, _: made.value("launches_per_step") != 0,
    "longer; your threshold": lambda made, _: (removed(made) or 0) < 0,
    "shortens the iteration": lambda made, _: gains(made),
    "predicted to shorten": lambda made, _: gains(made),
    "not shorten the iteration": lambda made, _: not gains(made),
    "predicted": lambda made, verdict: verdict.basis not in ("measured", "what_if"),
    "no replay was measured": lambda made, _: made.replay.status != "measured",
    "nothing ran on a GPU": lambda made, _: made.mode == "rehearsal",
    "never used the GPU": lambda made, _: made.facts.unused_gpu is not None,
    "inside the step such a read": lambda made, _: (made.value("syncs_per_step") or 0) > 0,
    "shapes are stable": lambda made, _: made.shapes.stable is True,
    "adopt CUDA graphs": lambda _, verdict: verdict.recommendation == "adopt",
    "adopt one CUDA graph": lambda _, verdict: verdict.recommendation == "adopt_bucketed",
    "stay eager:": lambda _, verdict: verdict.recommendation == "stay_eager",
    "inconclusive": lambda _, verdict: verdict.recommendation == "inconclusive",
    "worth a CUDA graph once": lambda _, verdict: verdict.recommendation == "adopt_after_fixes",
    "unsafe as it is": lambda _, verdict: verdict.recommendation == "unsafe",
    "already graphed": lambda _, verdict: verdict.recommendation == "already_graphed",
}


@pytest.mark.slow
def test_no_sentence_is_wrong_or_contradicts_its_figures() -> None:
    wrong = {sentence for made in one_at_a_time() for sentence in wrong_sentences(made)}
    assert not wrong, "\n".join(sorted(wrong)[:40])


def crossovers() -> Iterator[Crossover]:
    sizes = (None, 1.0, 1.5, 9.96, 113.0, 1e6)
    for threshold, size in product(THRESHOLDS, sizes):
        for gains in ((), ((16, threshold), (64, threshold - 0.04)), ((1, 62.5), (4096, 0.0))):
            yield Crossover(threshold, size, gains)


def strategies() -> Iterator[Strategies]:
    def strategy(mode: Any, ms: float | None, status: Any = "follows", **changes: Any) -> Strategy:
        speedup = 9.39 / ms if ms else None
        followed = Trajectory(status, "loss", changes.pop("steps", 16), 0.0, 1.0, Reason("no_loss"))
        return Strategy(mode, Metric(ms, "ms"), None, speedup, trajectory=followed, **changes)

    eager = strategy("eager", 9.39, "reference")
    failed = PointFailure(Reason("run_failed", {"error": "it ended with exit code 1"}))
    yield Strategies(())
    yield Strategies((replace(eager, iteration_ms=None, failure=failed),))
    yield Strategies((eager,))
    for ms, status in product((None, 1e-6, 1.0, 7.98, 9.38, 9.39, 30.0), ("follows", "differs")):
        yield Strategies(
            (eager, strategy("compile", ms, status), strategy("graphed", 5.0, failure=failed))
        )
        yield Strategies((eager, strategy("replay", ms, projected=True, setup_ms=-3.0, steps=1)))
        yield Strategies(
            (eager, strategy("replay", 4.0, setup_ms=39.0), strategy("compile", ms, status))
        )
        yield Strategies((eager, strategy("graphed", ms, "not_compared", steps=0)))


def test_no_sentence_of_a_comparison_is_wrong() -> None:
    texts = {crossover_sentence(found) for found in crossovers()}
    for threshold in THRESHOLDS:
        texts |= {best_strategy(strategies, threshold).headline for strategies in strategies()}
    wrong = [f"{complaint}: {text}" for text in texts for complaint in complaints(text)]
    assert not wrong, "\n".join(sorted(wrong)[:40])
    assert len(texts) > 60
