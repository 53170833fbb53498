from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.analysis.comparison.strategies import Trial, compare_strategies, trajectory
from launchscope.model import (
    Adoption,
    Correctness,
    IterationSource,
    Metric,
    PointFailure,
    Profile,
    Reason,
    Recording,
    Replay,
    Strategies,
    StrategyName,
    StrategyResult,
)
from launchscope.parser import read_recording
from launchscope.rules.verdict.strategies import advised
from tests.report import adoptions
from tests.rules.profiles import profile

RECORDINGS = Path(__file__).parents[3] / "sample_workloads" / "recordings"
LOSSES = tuple(2.0 - 0.01 * i for i in range(26))


def adopted(**changes: object) -> StrategyResult:
    made = StrategyResult(
        "adopted", settle_ms=(900.0, 100.0, 4.0, 4.0, 4.0, 4.0), values=LOSSES,
        adopted_at=10, setup_ms=50.0, reserved_mib=512.0,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(RECORDINGS / "small_mlp")


def trial(
    recording: Recording,
    mode: StrategyName,
    iteration_ms: float,
    strategy: StrategyResult | None = None,
    facts: dict[str, object] | None = None,
) -> Trial:
    made = profile(metrics={"iteration_ms": iteration_ms}, facts=facts)
    return Trial(mode, dataclasses.replace(recording, strategy=strategy or adopted()), made)


def strategies(recording: Recording, *others: Trial) -> Strategies:
    eager = trial(recording, "eager", 10.0, adopted())
    return advised(compare_strategies([eager, *others]), 15.0)


def test_the_fastest_strategy_with_eagers_result_is_the_best(recording: Recording) -> None:
    made = strategies(recording, trial(recording, "compile", 4.0), trial(recording, "graphed", 5.0))
    assert made.best == "compile"
    assert "from 10.0 ms to 4.00 ms (2.50x)" in made.headline
    assert "loss follows eager's over 16 steps" in made.headline
    assert "Slower: make_graphed_callables (2.00x)" in made.headline


def test_a_setup_counts_against_the_steps_that_are_meant_to_run(recording: Recording) -> None:
    eager = trial(recording, "eager", 10.0, adopted())
    slow = trial(recording, "compile", 4.0, adopted(setup_ms=9000.0, settle_ms=(4.0,)))
    quick = trial(recording, "graphed", 5.0, adopted(setup_ms=100.0, settle_ms=(5.0,)))
    found = compare_strategies([eager, slow, quick])
    assert advised(found, 15.0).best == "compile"
    assert "Its setup takes 9,000 ms." in advised(found, 15.0).headline
    short = advised(found, 15.0, 1000)
    assert short.best == "graphed"
    assert advised(found, 15.0, 100_000).best == "compile"
    none = advised(compare_strategies([eager, slow]), 15.0, 1000)
    assert none.best is None
    assert "no setup is paid back in the steps" in none.headline


def test_a_verified_patch_is_a_strategy(recording: Recording) -> None:
    patch = adoptions.verified()
    made = strategies(
        recording, trial(recording, "graphed", 5.0), Trial("adopt", None, None, adoption=patch)
    )
    assert made.best == "adopt"
    found = made.tried[-1]
    assert patch.speedup is not None
    assert found.speedup == patch.speedup
    assert found.iteration_ms == Metric(10.0 / patch.speedup, "ms")
    assert "its update follows eager's over" in made.headline


@pytest.mark.parametrize(
    ("value", "code"),
    [(adoptions.refused(), "host_read"), (adoptions.not_needed(), "verdict_against"),
     (adoptions.unverified(), "no_gpu_work")],
)  # fmt: skip
def test_without_a_verified_patch_the_row_says_why(
    recording: Recording, value: Adoption, code: str
) -> None:
    made = strategies(recording, Trial("adopt", None, None, adoption=value))
    failure = made.tried[-1].failure
    assert failure is not None
    assert failure.reason.code == code


def test_a_strategy_whose_losses_differ_is_not_recommended(recording: Recording) -> None:
    wrong = adopted(values=tuple(1.1 * loss if i > 12 else loss for i, loss in enumerate(LOSSES)))
    made = strategies(
        recording, trial(recording, "compile", 2.0, wrong), trial(recording, "graphed", 5.0)
    )
    assert made.best == "graphed"
    assert "whose result differs from eager" in made.headline


def test_strategies_below_the_threshold_mean_stay_eager(recording: Recording) -> None:
    made = strategies(recording, trial(recording, "compile", 9.5))
    assert made.best is None
    assert made.headline.startswith("Stay eager: the fastest strategy")


def test_set_up_is_what_the_first_steps_took_beyond_the_later_ones(
    recording: Recording,
) -> None:
    made = strategies(recording, trial(recording, "compile", 4.0))
    assert made.tried[1].setup_ms == pytest.approx(50 + 896 + 96)
    assert made.tried[0].setup_ms is None


def test_a_strategy_that_failed_is_a_row_with_its_reason(recording: Recording) -> None:
    refused = StrategyResult("failed", reason=Reason("script_compiles"))
    lost = Trial("graphed", dataclasses.replace(recording, strategy=refused), None)
    made = strategies(recording, trial(recording, "compile", 4.0), lost)
    assert made.best == "compile"
    assert made.tried[2].failure == PointFailure(Reason("script_compiles"))


@pytest.mark.parametrize(
    ("source", "verb"), [("measured", "takes"), ("subtracted", "is projected to take")]
)
def test_a_verified_replay_takes_part(
    recording: Recording, source: IterationSource, verb: str
) -> None:
    whole = profile(
        metrics={"replayed_iteration_ms": Metric(2.0, "ms", source=source)},
        replay=Replay("measured", scope="full_step", correct=Correctness("verified", 4, 2e-7)),
    )
    made = strategies(
        recording, Trial("replay", recording, whole), trial(recording, "compile", 4.0)
    )
    assert made.best == "replay"
    assert made.tried[1].projected == (source != "measured")
    assert f"it {verb} the iteration" in made.headline


def test_a_replay_that_is_wrong_or_unchecked_is_named_and_not_recommended(
    recording: Recording,
) -> None:
    for correct, said in (
        (Correctness("different", 4, 0.4), "whose result differs"),
        (
            Correctness(reason=Reason("state_too_large", {"what": "the state", "mib": 9e4})),
            "a copy of the state takes 90,000 MiB",
        ),
    ):
        whole: Profile = profile(
            metrics={"replayed_iteration_ms": 2.0}, replay=Replay("measured", correct=correct)
        )
        made = strategies(
            recording, Trial("replay", recording, whole), trial(recording, "compile", 4.0)
        )
        assert made.best == "compile"
        assert said in made.headline


def test_a_strategy_whose_process_failed_after_it_was_timed_is_not_recommended(
    recording: Recording,
) -> None:
    fast = trial(recording, "compile", 2.0)
    failed = replace(
        fast, failure=PointFailure(Reason("run_failed", {"error": "it ended with exit code 1"}))
    )
    made = strategies(recording, failed, trial(recording, "graphed", 4.0))
    assert made.best == "graphed"
    assert "whose process failed: it ended with exit code 1" in made.headline


def test_without_eager_nothing_is_compared(recording: Recording) -> None:
    lost = Trial("eager", None, None, PointFailure(Reason("run_failed", {"error": "it crashed"})))
    made = advised(compare_strategies([lost, trial(recording, "compile", 4.0)]), 15.0)
    assert made.best is None
    assert "it crashed" in made.headline


@pytest.mark.parametrize(
    ("eager", "other", "wanted"),
    [
        (adopted(), adopted(), ("follows", 16, 0.0, None)),
        # JSON has no infinity.
        (adopted(), adopted(values=(*LOSSES[:20], None, *LOSSES[21:])),
         ("differs", 16, None, "loss_not_finite")),
        (adopted(), adopted(values=tuple(1.5 * loss for loss in LOSSES)),
         ("not_compared", 16, None, "runs_differ")),
        (adopted(), adopted(adopted_at=11), ("not_compared", 0, None, "adopted_at_another_step")),
        (adopted(of="output", adopted_at=0), adopted(of="output", adopted_at=0),
         ("follows", 26, 0.0, None)),
    ],
    ids=["equal", "not finite", "different before", "at other steps", "outputs of inference"],
)  # fmt: skip
def test_the_losses_after_adopting_are_compared(
    eager: StrategyResult, other: StrategyResult, wanted: tuple[str, int, float | None, str | None]
) -> None:
    found = trajectory(eager, other)
    reason = None if found.reason is None else found.reason.code
    assert (found.status, found.steps, found.largest_pct, reason) == wanted
