"""What passes, what fails, and what the gate does not claim to know."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from launchscope.gate import confirmed, merged
from launchscope.model import Metric, OpRow, Profile, SourceLine, Target
from tests.gate.profiles import OPS, checked, elsewhere, gpu, item, limit, rehearsal


def test_the_same_profile_passes_every_default() -> None:
    for profile in (gpu(), rehearsal()):
        result = checked(profile, profile)
        assert {d.outcome for d in result.limits} == {"passed"}
        assert (result.outcome, result.stale, result.changes) == ("passed", False, ())
        assert len(result.limits) == 3


def test_one_more_launch_fails_and_shows_both_counts() -> None:
    result = checked(gpu({"launches_per_step": 556}), gpu())
    found = limit(result, "launches_per_step")
    assert (result.outcome, found.outcome, found.bound) == ("failed", "failed", 555)
    assert found.reason == "rose from 555 to 556; the limit +0 allows at most 555"
    assert result.headline.startswith("launches_per_step rose from 555 to 556")


def test_a_percentage_may_rise_by_its_points_and_no_further() -> None:
    assert checked(gpu({"launch_overhead_pct": 63.6}), gpu()).outcome == "passed"
    assert checked(gpu({"launch_overhead_pct": 63.8}), gpu()).outcome == "failed"


def test_a_share_of_a_small_value_does_not_count_below_the_floor() -> None:
    before = gpu({"dispatch_gap_ms": 0.010})
    assert checked(gpu({"dispatch_gap_ms": 0.018}), before, "dispatch_gap_ms=+5%").outcome == (
        "passed"
    )
    assert checked(gpu({"dispatch_gap_ms": 0.021}), before, "dispatch_gap_ms=+5%").outcome == (
        "failed"
    )


def test_an_absolute_limit_needs_no_baseline() -> None:
    assert checked(gpu(), None, "launches_per_step=555").outcome == "passed"
    failed = checked(gpu(), None, "launches_per_step=554")
    assert failed.outcome == "failed"
    assert "launches_per_step is 555, above the limit of 554" in failed.headline


def test_a_speedup_fails_when_it_falls() -> None:
    before = gpu()
    assert checked(gpu({"speedup": 3.5}), before, "speedup=-5%").outcome == "passed"
    assert checked(gpu({"speedup": 2.7}), before, "speedup=-5%").outcome == "failed"
    assert checked(gpu({"speedup": 2.7}), None, "speedup=2.8").outcome == "failed"
    assert checked(gpu({"speedup": 2.7}), None, "speedup=2.6").outcome == "passed"


# --------------------------------------------------------------------- several processes


def test_a_timing_fails_only_if_its_best_process_is_worse_than_the_baselines_worst() -> None:
    before = merged([gpu({"iteration_ms": ms}) for ms in (9.0, 9.4, 9.2)])
    assert before.metrics["iteration_ms"].value == 9.2

    def result(*times: float) -> str:
        now = merged([gpu({"iteration_ms": ms}) for ms in times])
        return checked(now, before, "iteration_ms=+5%").outcome

    assert result(9.3, 9.6, 9.5) == "passed"
    assert result(9.8, 10.2, 10.4) == "inconclusive"  # 9.8 is within 9.4 + 5 %
    assert result(9.9, 10.2, 10.4) == "failed"


def test_figures_have_the_digits_that_tell_them_apart() -> None:
    (found,) = checked(
        gpu({"iteration_ms": 123.44}), gpu({"iteration_ms": 123.41}), "iteration_ms=+0"
    ).limits
    assert found.reason == (
        "rose from 123.41 ms to 123.44 ms; the limit +0 allows at most 123.42 ms"
    )
    (found,) = checked(
        gpu({"iteration_ms": 123.411}), gpu({"iteration_ms": 123.414}), "iteration_ms=+0"
    ).limits
    assert found.reason == "123.4 ms, as in the baseline"


def test_strict_fails_what_is_inconclusive() -> None:
    before = merged([gpu({"iteration_ms": ms}) for ms in (9.0, 9.4, 9.2)])
    now = merged([gpu({"iteration_ms": ms}) for ms in (9.8, 10.2, 10.4)])
    result = checked(now, before, "iteration_ms=+5%", strict=True)
    assert result.outcome == "failed"
    assert "(strict)" in result.headline


def varying(*counts: int) -> Metric:
    return Metric(counts[0], "1", exact=False, samples=tuple(map(float, counts)))


def test_a_count_that_varies_is_gated_by_its_range() -> None:
    before = gpu({"launches_per_step": varying(210, 216, 220)})
    assert checked(gpu({"launches_per_step": varying(212, 221)}), before).outcome == "passed"
    assert checked(gpu({"launches_per_step": varying(218, 224)}), before).outcome == "inconclusive"
    assert checked(gpu({"launches_per_step": varying(221, 224)}), before).outcome == "failed"


def test_an_inconclusive_count_shows_its_worst_value() -> None:
    often = gpu({"launches_per_step": varying(555, 555, 556)})
    (reason,) = [x.reason for x in checked(often, gpu(), "launches_per_step=+0").limits]
    assert reason == "555, but 556 at worst; 555 in the baseline"
    (reason,) = [x.reason for x in checked(often, gpu(), "launches_per_step=554").limits]
    assert reason == "is 555, above the limit of 554"
    often = gpu({"launches_per_step": varying(556, 556, 555)})
    (reason,) = [x.reason for x in checked(often, gpu(), "launches_per_step=555").limits]
    assert reason == "is 556, above the limit of 555, but 555 at best"


def test_processes_that_disagree_make_a_count_a_range() -> None:
    joined = merged([gpu({"launches_per_step": count}) for count in (555, 556, 555)])
    assert joined.metrics["launches_per_step"].exact is False
    assert checked(gpu({"launches_per_step": 556}), joined).outcome == "passed"
    assert checked(gpu({"launches_per_step": 557}), joined).outcome == "failed"


def test_a_failure_that_the_second_measurement_does_not_repeat_is_inconclusive() -> None:
    first = checked(gpu({"launches_per_step": 556}), gpu())
    again = confirmed(first, checked(gpu(), gpu()))
    assert again.outcome == "inconclusive"
    assert "the first measurement failed" in limit(again, "launches_per_step").reason
    assert confirmed(first, first).outcome == "failed"
    assert confirmed(first, checked(gpu(), gpu()), strict=True).outcome == "failed"


def test_a_failure_that_the_second_measurement_cannot_compare_stays_a_failure() -> None:
    first = checked(gpu({"launches_per_step": 556}), gpu())
    again = confirmed(first, checked(gpu({"launches_per_step": None}), gpu()))
    assert again.outcome == "failed"
    found = limit(again, "launches_per_step")
    assert (found.outcome, found.value) == ("failed", 556)
    assert found.reason.endswith("; the second measurement: not measured")


# ----------------------------------------------------------------------------- rehearsal


def test_a_rehearsal_fails_on_one_more_op_and_names_it() -> None:
    more = (*OPS, OpRow("aten.mul", 1, SourceLine("train.py", 32)))
    result = checked(rehearsal(more), rehearsal())
    assert limit(result, "device_ops_per_step").outcome == "failed"
    (change,) = result.changes
    assert (change.kind, change.name, change.before, change.after) == ("op", "aten.mul", 0, 1)
    assert change.where == (SourceLine("train.py", 32),)


def test_a_new_blocker_fails_even_if_an_old_one_went() -> None:
    other = replace(
        item(), op="aten.nonzero", where=SourceLine("train.py", 40), code="mask.nonzero()"
    )
    result = checked(rehearsal(blockers=[other]), rehearsal(blockers=[item()]))
    found = limit(result, "blockers")
    assert (found.outcome, found.value, found.baseline) == ("failed", 1, 1)
    assert [c.name for c in result.changes] == ["aten.nonzero", "aten._local_scalar_dense"]


def test_a_blocker_on_another_line_is_not_new() -> None:
    result = checked(rehearsal(blockers=[item(40)]), rehearsal(blockers=[item(29)]))
    assert (result.outcome, result.changes) == ("passed", ())


def test_newly_changing_shapes_fail_and_always_changing_shapes_do_not() -> None:
    def signatures(count: int) -> Metric:
        return Metric(count, "1", exact=True)

    def with_signatures(count: int) -> object:
        made = rehearsal()
        return replace(made, metrics={**made.metrics, "shape_signatures": signatures(count)})

    one, two, three = map(with_signatures, (1, 2, 3))
    assert limit(checked(two, one), "shape_signatures").outcome == "failed"  # type: ignore[arg-type]
    assert limit(checked(three, two), "shape_signatures").outcome == "inconclusive"  # type: ignore[arg-type]
    assert checked(one, two).outcome == "passed"  # type: ignore[arg-type]


# -------------------------------------------------------------------------- not compared


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "NVIDIA A100"}, "measured on NVIDIA H200, this run on NVIDIA A100"),
        ({"world_size": 8}, "the baseline has 1 rank, this run 8"),
    ],
)
def test_another_device_or_world_size_is_not_comparable(
    change: dict[str, object], message: str
) -> None:
    result = checked(elsewhere(gpu(), **change), gpu())
    assert result.outcome == "not_compared"
    assert message in result.headline


def test_a_rehearsal_is_not_compared_with_a_gpu() -> None:
    assert checked(rehearsal(), gpu()).outcome == "not_compared"
    assert checked(gpu(), rehearsal()).outcome == "not_compared"


def test_another_driver_or_torch_is_a_warning() -> None:
    result = checked(elsewhere(gpu(), driver="600.1", torch="2.12.0"), gpu())
    assert result.outcome == "passed"
    assert [w.split(",")[0] for w in result.warnings] == [
        "the baseline was made with PyTorch 2.11.0",
        "the baseline was made with driver 580.95",
    ]


@pytest.mark.parametrize(
    ("kind", "now", "before", "differs"),
    [
        ("script", "a/train.py", "b/train.py", True),
        ("script", "train.py", "infer.py", True),
        ("script", "./train.py", "train.py", False),
        ("script", "examples/train.py", "train.py", False),  # from another folder
        ("module", "pkg.train", "pkg.infer", True),
        ("trace", "monday.json", "friday.json", False),
    ],
)
def test_a_baseline_of_a_different_script_is_a_warning(
    kind: Literal["script", "module", "trace"], now: str, before: str, differs: bool
) -> None:
    made = [replace(gpu(), target=Target(kind, name)) for name in (now, before)]
    result = checked(made[0], made[1])
    found = [text for text in result.warnings if "a different target" in text]
    assert found == [f"the baseline was made of a different target: {before}"] * differs


def test_a_check_that_compared_nothing_does_not_pass() -> None:
    nothing = dict.fromkeys(("launches_per_step", "syncs_per_step", "launch_overhead_pct"))
    assert checked(gpu(nothing), gpu()).outcome == "not_compared"
    assert checked(gpu(), gpu(), "launches_per_step=off").outcome == "not_compared"


def test_a_limit_of_the_command_line_that_was_not_measured_is_not_ignored() -> None:
    result = checked(rehearsal(), rehearsal(), "launches_per_step=+0", "device_ops_per_step=+0")
    assert result.outcome == "not_compared"
    assert "launches_per_step: not measured, because nothing ran on a GPU" in result.headline


def test_fewer_launches_than_the_baseline_make_it_stale() -> None:
    result = checked(gpu({"launches_per_step": 540}), gpu())
    assert (result.outcome, result.stale) == ("passed", True)
    assert "stale" in result.headline


def test_fewer_shapes_that_still_change_do_not_make_the_baseline_stale() -> None:
    def shapes(count: int) -> Profile:
        made = rehearsal()
        return replace(made, metrics={**made.metrics, "shape_signatures": Metric(count, "1", True)})

    assert not checked(shapes(2), shapes(3)).stale
    assert checked(shapes(1), shapes(3)).stale


def test_a_timing_that_happens_to_be_better_does_not_make_the_baseline_stale() -> None:
    assert not checked(gpu({"launch_overhead_pct": 60.0}), gpu()).stale
    assert checked(gpu({"launch_overhead_pct": 59.0}), gpu()).stale


def test_a_blocker_that_only_some_processes_met_does_not_fail_the_gate() -> None:
    with_it, without = rehearsal(blockers=[item()]), rehearsal()

    def outcome(now: list[Profile], before: list[Profile]) -> str:
        return limit(checked(merged(now), merged(before)), "blockers").outcome

    assert outcome([with_it, with_it, without], [without] * 3) == "inconclusive"
    assert outcome([with_it] * 3, [without] * 3) == "failed"
    assert outcome([with_it] * 3, [without, with_it, without]) == "passed"


def test_blockers_of_several_processes_are_counted_per_process() -> None:
    here, there = rehearsal(blockers=[item(29)]), rehearsal(blockers=[item(40)])
    joined = merged([here, there])
    assert len(joined.blockers) == 2
    assert limit(checked(joined, here), "blockers").outcome == "passed"
    twice = rehearsal(blockers=[item(29), item(29)])  # in two parts of the step
    assert limit(checked(merged([twice]), twice), "blockers").value == 2
