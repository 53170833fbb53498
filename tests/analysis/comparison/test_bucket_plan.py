from __future__ import annotations

from dataclasses import replace

import pytest

from launchscope.analysis import build_profile
from launchscope.analysis.comparison.buckets import bucket_plan
from launchscope.analysis.replay_model.bucket_sizes import curve
from launchscope.model import BucketPlan, Profile, Recording, SizesResult, TensorShape
from launchscope.rules.verdict.bucket_plan import advised
from tests.analysis.varying import generating, lengths, recorded
from tests.shapes import tensors


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recorded()


@pytest.fixture(scope="module")
def profile(recording: Recording) -> Profile:
    return build_profile(recording)


def planned(
    recording: Recording, profile: Profile, graphs: int = 8, limit: float | None = None
) -> BucketPlan:
    plan = bucket_plan(recording, profile, max_graphs=graphs, memory_limit_mib=limit)
    assert plan is not None
    return plan


def shapes(recording: Recording, profile: Profile, *inputs: str) -> BucketPlan | None:
    """The plan for steps with these inputs that were not timed."""
    changed = replace(recording, sizes=SizesResult(tuple(map(tensors, inputs))))
    return bucket_plan(changed, profile, max_graphs=8)


def test_the_lengths_in_the_recording_are_those_it_was_made_with(
    recording: Recording,
) -> None:
    assert recording.inspect is not None
    inspected = [tensors(f"(4, {length}) int64") for length in lengths()[46:49]]
    assert list(recording.inspect.inputs) == inspected


def test_every_observed_step_is_in_the_histogram(recording: Recording, profile: Profile) -> None:
    plan = planned(recording, profile)
    assert plan.kind == "padded"
    assert plan.dimension == "dimension 1 of the input"
    assert sum(count.steps for count in plan.sizes) == plan.observed_steps == 30
    assert [count.size for count in plan.sizes] == sorted(set(lengths()[10:40]))


def test_a_launch_bound_step_is_padded_with_little_waste(
    recording: Recording, profile: Profile
) -> None:
    plan = advised(planned(recording, profile), 15.0)
    assert plan.recommendation == "adopt_bucketed"
    assert plan.covered_pct == 100
    assert plan.buckets[-1].high == max(lengths()[10:40])
    assert plan.planned_ms is not None
    assert plan.exact_ms is not None
    assert plan.exact_ms <= plan.planned_ms <= 1.05 * plan.exact_ms
    assert plan.removable_pct == pytest.approx(100 * (1 - plan.planned_ms / (plan.eager_ms or 0)))
    assert (plan.removable_pct or 0) > 80


def test_no_graph_is_added_that_gains_next_to_nothing(
    recording: Recording, profile: Profile
) -> None:
    one, many = planned(recording, profile, 1), planned(recording, profile, 8)
    assert len(one.buckets) == 1
    assert len(many.buckets) < 8
    assert (many.planned_ms or 0) <= (one.planned_ms or 0)


def test_the_memory_of_the_graphs_stays_under_the_limit(
    recording: Recording, profile: Profile
) -> None:
    plan = planned(recording, profile, limit=13.0)
    assert plan.memory_mib is not None
    assert 0 < plan.memory_mib <= 13.0


def test_a_limit_without_a_measured_memory_is_noted(recording: Recording, profile: Profile) -> None:
    assert recording.sizes is not None
    unknown = replace(recording, sizes=replace(recording.sizes, peak_mib=()))
    plan = planned(unknown, profile, limit=13.0)
    assert plan.memory_mib is None
    assert any("limit was not applied" in note for note in plan.notes)


def test_a_gain_under_the_threshold_means_stay_eager(
    recording: Recording, profile: Profile
) -> None:
    plan = advised(planned(recording, profile), 90.0)
    assert plan.recommendation == "stay_eager"
    assert "below your threshold" in plan.headline


def test_a_trace_that_cannot_be_read_is_noted(recording: Recording, profile: Profile) -> None:
    plan = planned(replace(recording, directory="/no/such/folder"), profile)
    assert plan.buckets == ()
    assert plan.times_unknown is not None
    assert plan.times_unknown.code == "trace_unreadable"


def test_shapes_that_do_not_vary_have_no_plan(recording: Recording, profile: Profile) -> None:
    assert shapes(recording, profile, *["(4, 8)"] * 30) is None
    assert bucket_plan(replace(recording, sizes=None), profile, max_graphs=8) is None


def test_two_free_dimensions_have_no_plan_of_one_size(
    recording: Recording, profile: Profile
) -> None:
    plan = shapes(recording, profile, "(4, 8)", "(5, 8)", "(4, 9)", "(5, 9)")
    assert plan is not None
    assert plan.kind == "unplanned"
    assert "more than one dimension" in advised(plan, 15.0).headline


def test_inputs_that_vary_together_are_one_size(recording: Recording, profile: Profile) -> None:
    varying = [f"({n}, 3, {2 * n}) ({n},) int64" for n in (4, 9, 6, 4, 7)]
    plan = shapes(recording, profile, *varying)
    assert plan is not None
    assert [count.size for count in plan.sizes] == [4, 6, 7, 9]
    assert plan.recommendation == "inconclusive"


def test_a_growing_cache_is_named_and_prefill_is_a_phase_of_its_own(
    recording: Recording, profile: Profile
) -> None:
    steps = []
    for _ in range(3):
        steps.append("(1, 48)")
        steps += [f"(1, 1) (1, 8, {n}, 32) (1, 8, {n}, 32)" for n in range(48, 60)]
    plan = shapes(recording, profile, *steps)
    assert plan is not None
    assert plan.kind == "growing"
    plan = advised(plan, 15.0)
    assert "static cache" in plan.headline
    decode, prefill = plan.phases
    assert decode.startswith("decode: 36 of 39 steps")
    assert prefill.startswith("prefill: 3 of 39 steps")
    assert "stay eager" in prefill


def masked(prompts: tuple[int, ...], new: int = 20) -> list[str]:
    """Tokens and an attention mask, and a cache that is no tensor, as Transformers calls it."""
    return [
        f"(1, {prompt}) (1, {prompt})" if step == 0 else f"(1, 1) (1, {prompt + step})"
        for prompt in prompts
        for step in range(new)
    ]


@pytest.mark.parametrize("prompts", [(48, 48, 48), (48, 50, 37)])
def test_prefill_of_the_same_structure_is_a_phase_of_its_own(
    recording: Recording, profile: Profile, prompts: tuple[int, ...]
) -> None:
    plan = shapes(recording, profile, *masked(prompts))
    assert plan is not None
    assert plan.kind == "growing"
    assert plan.dimension == "dimension 1 of input 2 of 2"
    decode, prefill = plan.phases
    assert decode.startswith("decode: 57 of 60 steps")
    assert prefill.startswith("prefill: 3 of 60 steps, inputs (1, 48) (1, 48)")


def test_a_smaller_last_batch_is_no_prefill(recording: Recording, profile: Profile) -> None:
    steps = [f"({4 if n % 5 else 2}, {n % 7}) int64" for n in range(40)]
    plan = shapes(recording, profile, *steps)
    assert plan is not None
    assert plan.kind == "unplanned"


def test_steps_of_another_structure_are_not_in_the_times_and_a_note_says_so(
    recording: Recording, profile: Profile
) -> None:
    assert recording.sizes is not None
    inputs = list(recording.sizes.inputs)
    inputs[3] = inputs[9] = tensors("(4, 8) int64, (4, 8) int64")
    changed = replace(recording, sizes=replace(recording.sizes, inputs=tuple(inputs)))
    plan = planned(changed, profile)
    assert any("the inputs of 2 steps have another structure" in note for note in plan.notes)
    assert plan.covered_pct == pytest.approx(100 * 28 / 30)


def test_a_limit_that_no_graph_fits_is_reported_with_the_memory_of_one(
    recording: Recording, profile: Profile
) -> None:
    plan = advised(planned(recording, profile, limit=1.0), 15.0)
    assert plan.buckets == ()
    assert plan.recommendation == "stay_eager"
    assert "the smallest graph needs" in plan.headline
    assert "more than the limit of 1.00 MiB" in plan.headline


@pytest.mark.parametrize("limit", [1.0, 20.0])
def test_a_static_cache_is_compared_with_the_limit_too(
    recording: Recording, profile: Profile, limit: float
) -> None:
    assert recording.sizes is not None
    assert recording.trace is not None
    changed = replace(
        recording,
        sizes=replace(
            recording.sizes, inputs=tuple(tensors(f"(1, {n}) int64") for n in range(40, 70))
        ),
        trace=replace(
            recording.trace, inputs=tuple(tensors(f"(1, {n}) int64") for n in range(70, 76))
        ),
    )
    plan = advised(planned(changed, profile, limit=limit), 15.0)
    assert plan.kind == "growing"
    assert plan.recommendation == ("adopt_bucketed" if limit == 20 else "stay_eager")
    assert ("a static cache of 69 needs" in plan.headline) is (limit == 1)


def test_growing_sizes_are_all_padded_to_the_longest(
    recording: Recording, profile: Profile
) -> None:
    assert recording.sizes is not None
    assert recording.trace is not None
    grown = tuple(tensors(f"(1, {n}) int64") for n in range(40, 70))
    traced = tuple(tensors(f"(1, {n}) int64") for n in range(70, 76))
    changed = replace(
        recording,
        sizes=replace(recording.sizes, inputs=grown),
        trace=replace(recording.trace, inputs=traced),
    )
    plan = advised(planned(changed, profile), 15.0)
    assert plan.kind == "growing"
    assert [(bucket.low, bucket.high) for bucket in plan.buckets] == [(40, 69)]
    assert plan.headline.startswith("Use a static cache")


def test_a_curve_goes_through_the_measured_sizes_and_on_beyond_them() -> None:
    found = curve([(10, 1.0), (20, 2.0), (30, 3.0)], [10, 15, 30, 40, 5])
    assert found == pytest.approx([1.0, 1.5, 3.0, 4.0, 0.5], abs=1e-6)


def test_a_flat_curve_stays_flat() -> None:
    assert curve([(10, 2.0), (20, 2.0)], [5, 15, 99]) == pytest.approx([2.0, 2.0, 2.0])


def test_a_recorded_generation_gains_from_a_static_cache() -> None:
    recording = generating()
    assert recording.inspect is not None
    assert (
        TensorShape((1, 8, 61, 32), "float32") in recording.inspect.inputs[0]
    )  # steps 46 to 48 were inspected
    plan = advised(planned(recording, build_profile(recording)), 15.0)
    assert plan.kind == "growing"
    assert plan.recommendation == "adopt_bucketed"
    assert [(bucket.high, bucket.steps) for bucket in plan.buckets] == [(78, 29)]
    assert plan.phases[1].startswith("prefill: 1 of 30 steps, inputs (1, 48); they stay")
    assert (plan.removable_pct or 0) > 70
    assert plan.padding_pct is not None
