"""The verdict: what outranks what, and what is never claimed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import (
    Cause,
    Correctness,
    KernelChange,
    Metric,
    Profile,
    Reason,
    Replay,
    ShapeReplay,
    Shapes,
    ShapeSignature,
    SourceLine,
    Verdict,
    WorkComparison,
)
from launchscope.rules import advise
from tests.rules.cases import replayed, shapes, verdict
from tests.rules.profiles import (
    PREDICTED,
    SUBTRACTED,
    blocked,
    gpu_bound,
    item_blocker,
    predicted,
    profile,
    rehearsal,
    share,
)
from tests.shapes import tensors

WIDE = {"removable_pct": share(20.0, -3.0, 43.0)}
WRONG = replayed(correct=Correctness("different", 4, 0.44))
OTHER_WORK = replayed(work=WorkComparison(False, (KernelChange("softmax_warp", 247, 3100.0),)))
UNCHECKED = Reason("few_compared", {"compared": 2, "wanted": 4})
OUT_OF_MEMORY = Reason("out_of_memory", {"kind": "OutOfMemoryError", "error": "CUDA out of memory"})
BUSY: dict[str, float | Metric] = {
    "iteration_busy_ms": 9.3,
    "gpu_busy_ms": 9.3,
    "predicted_replay_ms": Metric(9.4, "ms", low=9.0, high=9.6),
    "removable_pct": share(0.0, -40.0, 40.0),
}
CONTRADICTED: dict[str, float | Metric | None] = {
    "iteration_busy_ms": 9.395 * 1.05,
    "removable_pct": None,
    "replayed_iteration_ms": None,
}
SMALL = profile(metrics={"removable_pct": share(8.0, 7.0, 9.0)}, facts={"removable_step_pct": 8.5})
RATE = Cause("learning_rate", SourceLine("train.py", 30), 0.1, 0.09, "SGD", "lr")


def waiting(wait: str) -> Profile:
    metrics: dict[str, float | Metric] = {"removable_pct": share(2.0, 1.0, 3.0), wait: 6.0}
    return profile(metrics=metrics, facts={"removable_step_pct": 65.0})


# A Profile, what its verdict is, codes of its reasons (its first one first), and parts of its
# headline.
VERDICTS: dict[str, tuple[Profile, str, str, tuple[str, ...]]] = {
    "a replay whose result is unchecked": (
        profile(replay=replayed(correct=Correctness("not_checked", reason=UNCHECKED))),
        "adopt measured medium", "LS001 LS004", (),
    ),
    "a prediction without blockers": (
        predicted(), "adopt predicted medium", "LS001", ("No replay was measured",),
    ),
    "a prediction with a blocker": (
        blocked(), "adopt_after_fixes predicted", "LS001", ("train.py:52",),
    ),
    "a blocker that was stubbed": (
        profile(
            replay=replayed(status="what_if", reason=Reason("blockers_stubbed", {"count": 1})),
            blockers=(item_blocker(),),
        ),
        "adopt_after_fixes what_if", "LS001", (),
    ),
    "a measured replay outranks a recorded blocker": (
        profile(blockers=(item_blocker(),)), "adopt measured", "LS001", (),
    ),
    "a measured replay outranks a better prediction": (
        profile(
            metrics={"removable_pct": share(2.0, 1.5, 2.5), "predicted_replay_ms": 1.0},
            facts={"removable_step_pct": 2.0},
        ),
        "stay_eager", "LS001", (),
    ),
    "a GPU-bound step, whatever its launch share": (
        gpu_bound(), "stay_eager high", "LS001",
        ("0.2 %", "within the spread", "at most 1.0 %"),
    ),
    "a slower replay": (
        profile(
            metrics={"removable_pct": share(-5.0, -6.0, -4.0)}, facts={"removable_step_pct": -5.0}
        ),
        "stay_eager", "LS001", ("Stay eager: a replay makes the iteration 5.0 % longer.",),
    ),
    "a gain that the spread hides": (profile(metrics=WIDE), "inconclusive low", "LS001", ()),
    "a small gain that may be none": (
        profile(metrics={"removable_pct": share(4.0, -0.1, 14.0)}),
        "stay_eager", "LS001", ("4.0 %", "at most 14 %"),
    ),
    "a busy GPU leaves no room, however wide the bounds": (
        predicted(metrics=BUSY), "stay_eager", "LS001", (),
    ),
    "busy time above the iteration": (
        profile(metrics={"iteration_busy_ms": 12.0}), "adopt medium", "LS001", (),
    ),
    "a trace that contradicts the timings, without a replay": (
        predicted(
            metrics=CONTRADICTED,
            facts={"gain_unknown": Reason("trace_contradicts", {"excess_pct": 5.0})},
        ),
        "inconclusive low", "LS004", ("A measured replay would decide it",),
    ),
    "an iteration by subtraction": (
        profile(metrics={"replayed_iteration_ms": SUBTRACTED}), "adopt medium", "LS001", (),
    ),
    "a capture that never pays back": (
        profile(metrics={"break_even_steps": 900.0}, expected_steps=500),
        "stay_eager", "LS009", (),
    ),
    "a late break-even of a run of any length": (
        profile(metrics={"break_even_steps": 900.0}), "adopt", "LS001", (),
    ),
    "a capture that failed": (
        predicted(replay=Replay("failed", reason=OUT_OF_MEMORY)),
        "inconclusive predicted", "LS030",
        ("but the capture failed: OutOfMemoryError: CUDA out of memory.",
         "to shorten the iteration by 62 %", "Fix the capture and profile again to measure it."),
    ),
    "other work than eager's, even if it looks useless": (
        profile(metrics={"removable_pct": share(-1.0, -2.0, 0.0)}, replay=OTHER_WORK),
        "unsafe", "LS033", (),
    ),
    "a wrong result": (profile(replay=WRONG), "unsafe", "LS033", ("44 % of an update",)),
    "a wrong result of a replay that would not pay": (
        replace(gpu_bound(), replay=WRONG), "stay_eager", "LS001", (),
    ),
    "a rate that changes, whatever the check saw": (
        profile(facts={"scheduler_live": True}), "unsafe", "LS035", (),
    ),
    "a rate that changes, without a measured replay": (
        profile(
            replay=replayed(status="skipped", reason=Reason("not_run")),
            facts={"scheduler_live": True},
        ),
        "unsafe", "LS035", (),
    ),
    "no replay was measured": (
        profile(replay=replayed(status="skipped", reason=Reason("not_run"))),
        "adopt", "LS001", (),
    ),
    "a rate that changes, however wide the spread": (
        profile(metrics=WIDE, facts={"scheduler_live": True}), "unsafe", "LS035", (),
    ),
    "too many shapes": (
        predicted(shapes=shapes(*(f"(8, {length}) float32" for length in range(90, 150, 2)))),
        "stay_eager", "LS010", ("30 different shapes",),
    ),
    "a gain below the threshold": (
        SMALL, "stay_eager", "LS001", ("shortens the iteration by 8.0 %", "below your threshold"),
    ),
    "the same gain beside a lower threshold": (
        replace(SMALL, threshold_pct=5.0), "adopt", "LS001", (),
    ),
    "a step in graphs": (
        profile(
            metrics={"graph_launches_per_step": 3}, facts={"graph_kernel_share_pct": 97.0}
        ),
        "already_graphed", "LS008", ("97 %",),
    ),
    "a step that gains in an iteration that waits for data": (
        waiting("data_wait_ms"), "stay_eager", "LS020",
        ("Fix the input pipeline first: the GPU waits for data for 6.00 ms",),
    ),
    "a step that gains in an iteration that synchronizes": (
        waiting("sync_wait_ms"), "stay_eager", "LS021",
        ("Fix the synchronization first: it costs 6.00 ms",),
    ),
    "a few shapes": (
        predicted(shapes=shapes("(8, 97) float32", "(8, 101) float32", steps=2)),
        "adopt_bucketed", "LS001 LS010", ("2 shapes seen",),
    ),
    "nothing timed": (
        predicted(metrics={"removable_pct": None, "iteration_ms": None}),
        "inconclusive", "LS030", ("no iteration was timed",),
    ),
    "a cause of a wrong result": (
        profile(replay=replayed(correct=Correctness("different", 4, 0.44, causes=(RATE,)))),
        "unsafe", "LS035",
        ("the learning rate of SGD changes (from 0.1 to 0.09), and a capture freezes it "
         "(train.py:30). A replay shortens the iteration by 62 %",),
    ),
    "a part of the step": (
        profile(replay=replayed(scope="forward_backward", reason=None)), "adopt", "LS001",
        ("Adopt CUDA graphs: a replay of the forward and backward passes shortens",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("of", "wanted", "codes", "said"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_on(of: Profile, wanted: str, codes: str, said: tuple[str, ...]) -> None:
    given = verdict(of)
    assert {*wanted.split()} <= {given.recommendation, given.basis, given.confidence}
    assert given.because[0] == codes[:5]
    assert {*codes.split()} <= {*given.because}
    for part in said:
        assert part in given.headline
    if given.recommendation in ("stay_eager", "already_graphed"):
        assert given.instructions == ()


def test_a_measured_and_verified_gain_is_adopted_with_high_confidence() -> None:
    given = verdict(profile())
    assert (given.recommendation, given.basis, given.confidence) == ("adopt", "measured", "high")
    assert given.headline == (
        "Adopt CUDA graphs: a replay of the step shortens the iteration by 62 %, from 9.39 ms to "
        "3.52 ms (2.67x)."
    )
    assert (given.speedup, given.iteration_speedup, given.removable_pct) == (2.87, 2.67, 62.5)
    assert given.because[0] == "LS001"


@pytest.mark.parametrize(
    ("value", "low", "high", "wanted"),
    [
        (20.0, 15.0, 25.0, ("adopt", "high")),
        (20.0, 14.9, 25.0, ("adopt", "medium")),
        (15.0, 0.1, 30.0, ("adopt", "medium")),
        (15.0, 0.0, 30.0, ("inconclusive", "low")),
        (14.9, 10.0, 15.0, ("inconclusive", "low")),
        (4.0, -30.0, 40.0, ("inconclusive", "low")),
        (14.0, -9.0, 14.9, ("stay_eager", "high")),
    ],
)
def test_the_interval_decides(
    value: float, low: float, high: float, wanted: tuple[str, str]
) -> None:
    given = verdict(profile(metrics={"removable_pct": share(value, low, high)}))
    assert (given.recommendation, given.confidence) == wanted
    assert given.because[0] == "LS001"


def test_replays_that_lost_kernels_lower_the_confidence_of_graphs_that_are_there() -> None:
    def given(*kernels: float) -> Verdict:
        steps = {
            "graph_launches_per_step": (1.0,) * 4,
            "launches_per_step": (0.0,) * 4,
            "kernels_per_step": kernels,
        }
        metrics = {key: Metric(values[0], "1", samples=values) for key, values in steps.items()}
        return verdict(profile(metrics=metrics, facts={"graph_kernel_share_pct": 100.0}))

    assert (given(90, 90, 90, 90).recommendation, given(90, 90, 90, 90).confidence) == (
        "already_graphed",
        "high",
    )
    assert given(90, 12, 90, 90).confidence == "medium"


def test_an_inconclusive_verdict_says_what_would_decide_it() -> None:
    quiet = "To decide it, profile again while nothing else runs on this machine"
    assert verdict(profile(metrics=WIDE)).headline.endswith(f"{quiet}.")
    subtracted = verdict(profile(metrics=WIDE | {"replayed_iteration_ms": SUBTRACTED}))
    assert f"{quiet} (--timing 120" in subtracted.headline
    blocked_replay = Replay("blocked", reason=Reason("no_stub"))
    unmeasured = verdict(predicted(metrics=WIDE, replay=blocked_replay)).headline
    assert "fix what prevents the capture and profile again" in unmeasured
    assert "run every pass" in verdict(predicted(metrics=WIDE)).headline
    trace = verdict(predicted(metrics=WIDE, mode="trace")).headline
    assert trace.endswith("A trace cannot decide this, so profile the script itself.")


def test_a_graphed_step_is_recognized_although_tracing_slowed_its_kernels() -> None:
    facts = {"graph_kernel_share_pct": 100.0}
    metrics: dict[str, float | None] = {
        "graph_launches_per_step": 1,
        "iteration_busy_ms": 12.0,
    }
    advised = advise(profile(metrics=metrics, facts=facts))
    assert advised.verdict is not None
    assert advised.verdict.recommendation == "already_graphed"
    (slowed,) = [found for found in advised.findings if found.code == "LS004"]
    assert slowed.severity == "info"


@pytest.mark.parametrize(
    ("removed", "is_predicted", "said"),
    [
        (2.0, False, "takes 65 % off the step, but it shortens the iteration by 2.0 %, from"),
        (2.0, True, "but it is predicted to shorten the iteration by 2.0 %, from"),
        (-0.03, False, "but it does not shorten the iteration, which is within the spread"),
        (-3.0, False, "takes 65 % off the step, but it makes the iteration 3.0 % longer."),
        (-3.0, True, "but it is predicted to make the iteration 3.0 % longer."),
    ],
)
def test_what_the_iteration_gains_beside_the_step_is_true_for_nothing_and_for_a_loss(
    removed: float, is_predicted: bool, said: str
) -> None:
    made = predicted if is_predicted else profile
    bounds = share(removed, removed - 1, removed + 1)
    metrics: dict[str, Metric | float | None] = {"removable_pct": bounds, "data_wait_ms": 6.0}
    given = verdict(made(metrics=metrics, facts={"removable_step_pct": 65.0}))
    assert said in given.headline


def test_a_rehearsal_gives_a_live_scheduler_as_its_reason() -> None:
    known = rehearsal()
    assert "LS035" not in verdict(known).because
    live = replace(known, facts=replace(known.facts, scheduler_live=True))
    given = verdict(live)
    assert "LS035" in given.because
    assert "LS035" in given.instructions[0]
    assert "learning rate" not in given.headline  # the finding says it, beside the headline


def test_inputs_that_pay_when_padded_to_a_few_sizes_are_padded() -> None:
    padded = (
        ShapeReplay(tensors("(8, 100) float32"), 60.0, 9.0, 2.0),
        ShapeReplay(tensors("(8, 120) float32"), 40.0, 9.0, 3.0),
    )
    of = profile(
        shapes=shapes("(8, 97) float32", "(8, 101) float32", "(8, 120) float32"),
        replay=Replay("skipped", Reason("ops_change"), padded=padded, padding_pct=12.0),
    )
    given = verdict(of)
    assert (given.recommendation, given.basis) == ("adopt_bucketed", "measured")
    assert given.headline.startswith(
        "Adopt one CUDA graph per input shape (2 shapes, 100 % of the steps) and pad other inputs "
        "to a few shapes: a replay shortens the iteration by 62 %"
    )
    assert given.headline.endswith(", although 12 % of the padded inputs is padding.")


def test_a_growing_cache_whose_longest_step_was_replayed_is_measured() -> None:
    growing = [
        f"(1, 1) int64, (1, 8, {n}, 4) float32, (1, 8, {n}, 4) float32" for n in (61, 62, 63)
    ]
    cache = tensors("(1, 1) int64, (1, 8, 79, 4) float32, (1, 8, 79, 4) float32") * 2
    replay = Replay("skipped", Reason("ops_change"), padded=(ShapeReplay(cache, 97.0, 9.0, 3.0),))
    of = profile(shapes=shapes(*growing), replay=replay)
    given = verdict(of)
    assert (given.recommendation, given.basis) == ("adopt_after_fixes", "measured")
    assert given.headline == (
        "Worth a CUDA graph once the inputs that grow by one in every step keep one size (a static "
        "cache): a replay shortens the iteration by 62 %, from 9.39 ms to 3.52 ms (2.67x)."
    )


def test_shapes_whose_replays_were_measured_get_one_graph_each() -> None:
    measured = (
        ShapeReplay(tensors("(8, 97) float32"), 60.0, 9.0, 3.0),
        ShapeReplay(tensors("(8, 101) float32"), 30.0, 9.0, 3.0),
    )
    of = profile(
        shapes=shapes("(8, 97) float32", "(8, 101) float32", "(8, 120) float32"),
        replay=Replay("skipped", Reason("ops_change"), shapes=measured),
    )
    given = verdict(of)
    assert (given.recommendation, given.basis) == ("adopt_bucketed", "measured")
    assert given.confidence == "medium"  # no result was compared with eager's
    assert given.headline.startswith(
        "Adopt one CUDA graph per input shape (2 shapes, 90 % of the steps) and pad other inputs "
        "to a few shapes: a replay shortens the iteration by 62 %"
    )
    assert given.instructions[0].startswith("Capture one graph for each frequent shape")
    assert "LS030" not in [finding.code for finding in advise(of).findings]


@pytest.mark.parametrize(
    ("of", "recommendation"),
    [
        (rehearsal(), "inconclusive"),
        (rehearsal(blockers=(item_blocker(),)), "inconclusive"),
        (rehearsal(shapes=shapes("(8,) float32", "(11,) float32")), "inconclusive"),
        (rehearsal(shapes=shapes(*(f"({n},) float32" for n in range(0, 40, 2)))), "stay_eager"),
        (
            rehearsal(shapes=Shapes(False, (ShapeSignature(2, ()), ShapeSignature(1, ())))),
            "inconclusive",
        ),
    ],
    ids=["clear", "blocked", "two shapes", "many shapes", "branch"],
)
def test_a_rehearsal_is_structural_and_never_a_time(of: Profile, recommendation: str) -> None:
    given = verdict(of)
    assert (given.recommendation, given.basis) == (recommendation, "structural")
    assert (given.speedup, given.iteration_speedup, given.removable_pct) == (None, None, None)
    assert " ms" not in given.headline


def test_different_work_carries_the_prediction_for_the_work_of_eager() -> None:
    of = profile(metrics={"speedup": 0.9, "replayed_iteration_ms": PREDICTED}, replay=OTHER_WORK)
    given = verdict(of)
    assert (given.recommendation, given.basis) == ("unsafe", "predicted")
    assert given.speedup == pytest.approx(9.015 / 3.1)
    assert (
        "A replay of the eager work is predicted to shorten the iteration by 62 %" in given.headline
    )
    advice = next(f.advice for f in advise(of).findings if f.code == "LS033")
    assert "is_current_stream_capturing" in advice
    assert "attention mask" in advice
