"""What passes, what fails, and what the gate does not claim to know."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from launchscope.gate.baseline import baseline_of
from launchscope.model import (
    BetweenSteps,
    Change,
    Metric,
    OpRow,
    OverheadRow,
    Profile,
    Shapes,
    ShapeSignature,
    SourceLine,
    StepBoundary,
)
from tests.gate.profiles import (
    OPS,
    checked,
    elsewhere,
    gpu,
    item,
    limit,
    rehearsal,
    with_between,
)


def test_the_same_profile_passes_every_default() -> None:
    for profile in (gpu(), rehearsal()):
        result = checked(profile, profile)
        assert {d.outcome for d in result.limits} == {"passed"}
        assert (result.outcome, result.stale, result.changes) == ("passed", False, ())
        assert all(d.exact for d in result.limits)
    assert {d.metric for d in checked(gpu(), gpu()).limits} >= {
        "launches_per_step", "syncs_per_step", "memcpys_per_step", "device_ops_per_step",
        "blockers", "graph_breaks",
    }  # fmt: skip


def test_a_step_of_another_form_is_a_warning() -> None:
    launches = StepBoundary("launches", (), (), "full_step", launches=5)
    shorter, none = replace(gpu(), step=launches), replace(gpu(), step=None)
    more = replace(gpu(), step=dataclasses.replace(launches, launches=6))
    for other in (more, gpu()):
        (said,) = checked(other, shorter).warnings
        assert said.startswith("the step changed from 5 launches that repeat, copies included to ")
    assert "the step changed from none to" in checked(gpu(), none).warnings[0]
    assert checked(none, none).warnings == ()


def test_a_time_fails_by_its_median() -> None:
    for limit_of, worse, fine in (
        ("launch_overhead_pct=65", 65.1, 65.0),
        ("speedup=2.8", 2.7, 2.9),
    ):
        metric = limit_of.partition("=")[0]
        assert checked(gpu({metric: fine}), None, limit_of).outcome == "passed"
        assert checked(gpu({metric: worse}), gpu(), limit_of).outcome == "failed"
        three = [gpu({metric: own}) for own in (worse, worse, fine)]
        assert checked(three[:2], None, limit_of).outcome == "failed"
        assert checked(three, None, limit_of).outcome == "passed"
    # Without a limit of its own, a time decides nothing.
    result = checked(gpu({"launch_overhead_pct": 95.0}), gpu())
    assert (result.outcome, result.stale) == ("passed", False)


# --------------------------------------------------------------------- several processes


def test_figures_have_the_digits_that_tell_them_apart() -> None:
    def reason(now: float, before: float) -> str:
        return (
            checked(gpu({"launches_per_step": now}), gpu({"launches_per_step": before}))
            .limits[0]
            .reason
        )

    assert reason(12_345.4, 12_345.1) == (
        "rose from 12,345.1 to 12,345.4; the limit allows at most 12,345.1"
    )


def varying(*counts: int) -> Metric:
    return Metric(counts[0], "1", exact=False, samples=tuple(map(float, counts)))


def test_a_count_that_varies_is_gated_by_its_range() -> None:
    before = gpu({"launches_per_step": varying(210, 216, 220)})
    assert checked(gpu({"launches_per_step": varying(212, 221)}), before).outcome == "passed"
    assert checked(gpu({"launches_per_step": varying(218, 224)}), before).outcome == "inconclusive"
    assert checked(gpu({"launches_per_step": varying(221, 224)}), before).outcome == "failed"


def test_an_inconclusive_count_shows_its_worst_value() -> None:
    often = gpu({"launches_per_step": varying(555, 555, 556)})
    reason = checked(often, gpu()).limits[0].reason
    assert reason == "stayed at 555 (555 to 556); the limit allows at most 555"
    often = gpu({"launches_per_step": varying(556, 556, 555)})
    result = checked(often, gpu(), "launches_per_step=555")
    assert result.limits[0].reason == "came to 556 (555 to 556); the limit allows at most 555"
    assert checked(often, gpu(), "launches_per_step=555", strict=True).outcome == "failed"


# ----------------------------------------------------------------------------- rehearsal


def test_a_failure_begins_with_the_line_to_blame_and_what_it_does() -> None:
    more = (*OPS, OpRow("aten.mul", 1, SourceLine("train.py", 32)))
    result = checked(rehearsal(more, [item(33)]), rehearsal())
    assert result.headline == (
        "train.py:32 now runs aten.mul: device operations per step rose from 9 to 10; "
        "the limit allows at most 9 (1 more failed)."
    )
    result = checked(rehearsal(more, [item(33)]), rehearsal(), "device_ops_per_step=off")
    assert result.headline == (
        "train.py:33 now runs .item(): blockers per step rose from 0 to 1, 1 of them new; "
        "the limit allows at most 0."
    )


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

    def with_signatures(*steps: int) -> Profile:
        made, seen = rehearsal(), tuple(ShapeSignature(count, ()) for count in steps)
        known = {**made.metrics, "shape_signatures": signatures(len(steps))}
        return replace(made, metrics=known, shapes=Shapes(len(steps) == 1, seen))

    one, two, three = with_signatures(10), with_signatures(5, 5), with_signatures(4, 3, 3)

    def outcome(now: Profile, before: Profile) -> str:
        return limit(checked(now, before), "shape_signatures").outcome

    assert outcome(two, one) == "failed"
    assert outcome(three, two) == "inconclusive"
    assert checked(one, two).outcome == "passed"
    assert checked(one, three).stale
    assert not checked(two, three).stale
    # A last batch that is smaller, or a short sequence now and then.
    rare = with_signatures(9, 1)
    assert outcome(rare, one) == "inconclusive"
    assert outcome(with_signatures(1, 1), with_signatures(2)) == "inconclusive"


# -------------------------------------------------------------------------- not compared


def test_a_baseline_that_counted_in_another_way_is_not_compared() -> None:
    now = replace(gpu(), counting=gpu().counting + 1)
    # An absolute limit that holds, and --strict, change nothing about that.
    for options in ((), ("launches_per_step=900",)):
        result = checked(now, gpu(), *options, strict=bool(options))
        assert result.outcome == "not_compared"
        assert "of the counting rules" in result.headline
    assert checked(now, gpu(), "launches_per_step=1").outcome == "failed"


@pytest.mark.parametrize(
    ("change", "upgrade"),
    [
        ({"torch": "2.12.0"}, "PyTorch changed from 2.11.0 to 2.12.0"),
        ({"cuda": "12.6"}, "CUDA changed from 13.0 to 12.6"),
        ({"torch": "2.12.0", "cuda": None}, "and CUDA changed from 13.0 to none"),
    ],
)
def test_a_baseline_of_another_version_is_compared_and_fails_only_if_strict(
    change: dict[str, object], upgrade: str
) -> None:
    def launching(profile: Profile, launches: float) -> Profile:
        return replace(profile, launches_by_operator=(OverheadRow("aten::add", launches, None),))

    before, same = launching(gpu(), 3), launching(elsewhere(gpu(), **change), 3)
    passed = checked(same, baseline_of(before))
    assert (passed.outcome, passed.changes) == ("passed", ())
    assert upgrade in (passed.upgrade or "")
    now = launching(elsewhere(gpu({"launches_per_step": 556}, kernels=()), **change), 4)
    result = checked(now, baseline_of(before))
    assert result.outcome == "inconclusive"
    assert upgrade in result.headline
    assert result.changes == (Change("operator", "aten::add", 3, 4),)  # and no names of kernels
    assert checked(now, before, strict=True).outcome == "failed"
    assert checked(now, before, "launches_per_step=1").outcome == "failed"


def test_builds_of_one_pytorch_are_compared_in_a_rehearsal() -> None:
    cpu, cuda = (elsewhere(rehearsal(), torch=f"2.11.0+{build}") for build in ("cpu", "cu130"))
    assert checked(elsewhere(cpu, cuda=None), elsewhere(cuda, cuda="13.0")).outcome == "passed"
    assert checked(elsewhere(rehearsal(), torch="2.12.0"), cpu).upgrade


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((), ("--fast",), "the arguments changed from none to --fast since the baseline was made"),
        (
            ("--lr", "1"),
            (),
            "the arguments changed from --lr 1 to none since the baseline was made",
        ),
    ],
)
def test_other_arguments_are_a_warning(
    before: tuple[str, ...], now: tuple[str, ...], expected: str
) -> None:
    target = gpu().target
    result = checked(
        gpu(target=dataclasses.replace(target, args=now)),
        gpu(target=dataclasses.replace(target, args=before)),
    )
    assert expected in result.warnings


def test_another_driver_is_a_warning() -> None:
    result = checked(elsewhere(gpu(), driver="600.1"), gpu())
    assert result.outcome == "passed"
    (warning,) = result.warnings
    assert warning == "the driver changed from 580.95 to 600.1 since the baseline was made"


def test_a_check_that_compared_nothing_does_not_pass() -> None:
    names = [d.metric for d in checked(gpu(), gpu()).limits]
    nothing = dict.fromkeys(name for name in names if name != "blockers")
    only = checked(gpu(nothing), gpu(), "blockers=off")
    assert only.outcome == "not_compared"
    assert checked(gpu(), gpu(), *(f"{name}=off" for name in names)).outcome == "not_compared"
    assert checked(rehearsal(), None, "launches_per_step=900").outcome == "not_compared"


def test_a_limit_that_cannot_be_evaluated_is_named_first_and_fails_if_strict() -> None:
    limits = ("launches_per_step=+0", "device_ops_per_step=+0")
    result = checked(rehearsal(), rehearsal(), *limits)
    assert result.outcome == "passed"
    assert result.headline == "8 limits passed. Not evaluated: launches per step."
    strict = checked(rehearsal(), rehearsal(), *limits, strict=True)
    assert strict.outcome == "failed"
    assert strict.headline == (
        "Launches per step could not be evaluated: not measured, because nothing ran on a GPU "
        "(strict)."
    )


@pytest.mark.parametrize("metric", ["between_launches", "between_syncs", "between_copies"])
def test_work_between_steps_fails_the_gate_though_the_step_is_as_it_was(metric: str) -> None:
    steps = BetweenSteps(10)
    result = checked(with_between(gpu(), steps, **{metric: 1}), gpu())
    assert result.outcome == "failed"
    assert [d.metric for d in result.limits if d.outcome == "failed"] == [metric]


def test_a_baseline_without_the_work_between_steps_is_still_compared() -> None:
    old = replace(rehearsal(), between=None)
    old = replace(old, metrics={k: m for k, m in old.metrics.items() if "between" not in k})
    result = checked(rehearsal(), old)
    assert result.outcome == "passed"
    assert limit(result, "device_ops_per_step").outcome == "passed"
    assert limit(result, "between_ops").reason == "the baseline does not have it"


# -------------------------------------------------------------- work of some iterations


ITEM = "aten._local_scalar_dense"


def did(metric: str, low: float, high: float) -> Profile:
    """A process whose iterations do this much of the work between steps."""
    made = with_between(gpu(), BetweenSteps(10), **{metric: low})
    ranges = {metric: (low, high)} if low != high else None
    return replace(made, facts=replace(made.facts, ranges=ranges))


def test_work_of_some_iterations_of_the_baseline_is_no_failure_in_all() -> None:
    metric = "between_syncs"
    sometimes, always = did(metric, 0, 1), did(metric, 1, 1)
    for before in (sometimes, baseline_of(sometimes)):
        assert checked([always] * 3, before).outcome == "passed"
        assert checked(did(metric, 2, 2), before).outcome == "failed"
        result = checked(did(metric, 1, 2), before)  # one more in every iteration
        assert result.outcome == "inconclusive"
        assert limit(result, metric).reason == (
            "rose from 0 to 1 (1 to 2); the limit allows at most 1"
        )
    assert checked(sometimes, always).outcome == "passed"
    assert not checked(sometimes, always).stale  # nobody took it out
    assert checked(did(metric, 0, 0), always).stale
    # What has a known period is no chance.
    assert checked(always, did(metric, 1 / 3, 1 / 3)).outcome == "failed"


def test_a_blocker_of_some_steps_does_not_fail_the_gate() -> None:
    def met(low: int, high: int) -> Profile:
        made = rehearsal(blockers=[replace(item(), count=high)] if high else [])
        ranges = {ITEM: (low, high)} if low != high else None
        return replace(made, facts=replace(made.facts, blocker_ranges=ranges))

    def outcome(now: Profile, before: Profile) -> str:
        return limit(checked([now] * 3, before), "blockers").outcome

    never, sometimes, always = met(0, 0), met(0, 1), met(1, 1)
    assert outcome(sometimes, never) == "inconclusive"
    assert outcome(always, never) == "failed"
    assert outcome(always, sometimes) == outcome(sometimes, always) == "passed"
    assert outcome(met(2, 2), sometimes) == "failed"
