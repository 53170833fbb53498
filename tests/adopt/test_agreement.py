"""Two runs agree if their bits do, or if they differ as little as two eager runs."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from launchscope.adopt.agreement import Growth, Noise, agreement, first_inequality, noise_of
from launchscope.adopt.child import kept_states
from launchscope.adopt.child.digests import BUCKETS, Digests
from launchscope.adopt.child.forced import enlarge_update
from launchscope.adopt.child.kept_states import KeptStates
from launchscope.adopt.child.state import TrainingState
from launchscope.adopt.observation import COMPARED, StepState

EPSILONS = {"weight": 1.2e-7}


def run(*, error: float = 0.0, since: int = 0, reads: float = 0.0) -> list[StepState]:
    """A weight that moves by 1 in each step; from `since` on it is off by this share of that."""
    states = []
    for unit in range(COMPARED + 2):
        off = error if unit > since else 0.0
        value = 100.0 + unit * (1 + off)
        name = round(value * 1e9)
        values = (value, *[0.0] * (BUCKETS - 1))
        state = StepState(unit, {"weight": name}, {"weight": values}, (1.0 + reads,), (7,), (unit,))
        states.append(state)
    return states


def test_equal_runs_agree_exactly() -> None:
    found = agreement(run(), run(), Noise(), EPSILONS)
    assert (found.exact, found.found, found.reads) == (True, None, COMPARED + 2)


def test_a_difference_is_named_with_the_step_in_which_it_begins() -> None:
    found = agreement(run(), run(error=0.5, since=20), Noise(), EPSILONS).found
    assert found is not None
    assert (found.what, found.name, found.unit) == ("state", "weight", 21)
    assert found.error == pytest.approx(0.5)


def test_a_difference_counts_from_where_a_fault_was_made() -> None:
    """What a mutant's run does before that is the right version's."""
    for since, unit in ((0, 6), (5, 6), (10, 11)):
        found = agreement(run(), run(error=0.5, since=5), Noise(), EPSILONS, since=since).found
        assert found is not None
        assert found.unit == unit


def test_a_difference_as_large_as_that_of_two_eager_runs_is_none() -> None:
    noise = noise_of(run(), run(error=0.01))
    assert not noise.none
    assert agreement(run(), run(error=0.05), noise, EPSILONS).found is None
    assert agreement(run(), run(error=0.5), noise, EPSILONS).found is not None


def growing(by: float, *, first: int = 0) -> list[StepState]:
    """A run that moves away from the others, by a factor in each step from the first one on."""
    states = run()
    for unit in range(first + 1, len(states)):
        value, *rest = states[unit].sketches["weight"]
        off = value + unit * 1e-6 * by ** (unit - first)
        states[unit] = replace(
            states[unit], digests={"weight": -unit}, sketches={"weight": (off, *rest)}
        )
    return states


def test_what_eager_runs_show_late_explains_no_difference_that_is_there_at_once() -> None:
    noise = noise_of(run(), growing(1.2))
    early = run()
    early[2] = run(error=0.05)[2]
    found = agreement(run(), early, noise, EPSILONS).found
    assert found is not None
    assert (found.unit, found.what) == (2, "state")


def test_runs_move_apart_sooner_or_later() -> None:
    noise = noise_of(run(), growing(1.2, first=12))
    for first in (4, 12, 20):
        assert agreement(run(), growing(1.2, first=first), noise, EPSILONS).found is None


def test_steps_that_begin_with_the_state_of_the_original_are_compared_one_by_one() -> None:
    """A weight that differs by a thousandth of each step: over 50 steps, and in one of them."""
    units = range(1, COMPARED + 2)
    reference = run()
    other = [
        StepState(s.unit, {"weight": -1}, {"weight": (v[0] + 1e-3, *v[1:])}, s.reads, s.inputs)
        for s, v in ((s, s.sketches["weight"]) for s in reference)
    ]
    other[0] = reference[0]
    together = agreement(reference, other, Noise({("weight", False): Growth({1: 3e-5})}), {}).found
    apart = agreement(reference, other, Noise(), {}, restored=units).found
    assert together is not None
    assert apart is not None
    assert apart.error == pytest.approx(1e-3, rel=1e-6)
    last = agreement(reference, [*reference[:50], *other[50:]], Noise(), {}).found
    assert last is not None
    assert last.error == pytest.approx(1e-3 / 50)


def test_where_bits_agree_nothing_explains_a_difference() -> None:
    found = agreement(run(), run(error=1e-6), Noise(), EPSILONS, bits=True).found
    assert found is not None
    assert found.unit == 1


def test_rounding_of_the_dtype_is_no_difference() -> None:
    found = agreement(run(), run(error=1e-6), Noise(), EPSILONS)
    assert (found.exact, found.found) == (False, None)


def bias(noise: random.Random | None, off: float = 0.0) -> list[StepState]:
    """A bias of one element that each step moves from where it was restored, by as much as another
    random number says; with noise of a thousandth of that in the mean."""
    moves, states, value = random.Random(0), [], 0.0
    for unit in range(COMPARED + 1):
        error = 0.0 if noise is None or not unit else 1e-3 * noise.gauss(0, 1)
        move = moves.gauss(0, 1) if unit else 0.0
        wrong = value + move * (1 + off) + error
        value += move
        number = noise.random() if noise is not None else 0.5
        sketch = (wrong, *[0.0] * (BUCKETS - 1))
        states.append(StepState(unit, {"weight": int(number * 2**60)}, {"weight": sketch}))
    states[0] = StepState(0, {"weight": 1}, {"weight": (0.0,) * BUCKETS})
    return states


@pytest.mark.slow
def test_noise_in_a_step_that_hardly_moves_a_bias_is_no_difference() -> None:
    """In a thousand runs of a right patch; a wrong one differs in each."""
    reference, units = bias(None), range(1, COMPARED + 1)
    wrong = right = 0
    for seed in range(1000):
        noise = noise_of(reference, bias(random.Random(seed)), restored=units)
        for off in (0.0, 0.5):
            patched = bias(random.Random(-1 - seed), off)
            found = agreement(reference, patched, noise, EPSILONS, restored=units).found
            wrong += off > 0 and found is not None
            right += off == 0 and found is None
    assert (right, wrong) == (1000, 1000)


def first_step_of_adam(noise: float, folder: Path, rate: float = 1e-3) -> StepState:
    """Of 128 elements, of which the gradient of one is nothing but noise."""
    kept = KeptStates(torch, str(folder), restores=False, step=1, until=10)
    weight = nn.Parameter(torch.linspace(-1, 1, 128))
    optimizer = torch.optim.Adam([weight], lr=rate)
    state = TrainingState(torch)
    state.add_optimizer(optimizer)
    kept.exchange(0, state.tensors())
    weight.grad = torch.linspace(-1, 1, 128) * (1 + noise)
    weight.grad[5] = noise
    optimizer.step()
    tensors, digests = state.tensors(), Digests(torch)
    updates = kept.updates(tensors, state.squares)
    return StepState(
        1,
        dict(zip(tensors, digests.digests([*tensors.values()]))),
        dict(zip(tensors, digests.sketches([*tensors.values()]))),
        updates=dict(zip(updates, digests.sketches([*updates.values()]))),
    )


def test_states_too_large_to_keep_all_are_kept_around_the_forced_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"weight": torch.zeros(256)}
    for room, kept in ((60, range(1, 61)), (10, range(6, 61, 6)), (6, range(48, 61, 3)), (1, ())):
        monkeypatch.setattr(kept_states, "_MOST_BYTES", 1024 * room)
        states = KeptStates(
            torch, str(tmp_path / str(room)), restores=False, step=1, until=60, events=48
        )
        written = [unit for unit in range(61) if states.exchange(unit, tensors)]
        assert written == list(kept)


def test_each_run_that_tells_the_noise_rounds_kept_states_in_its_own_way(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.linspace(1, 2, 64))
    exact = weight.detach().clone()
    KeptStates(torch, str(tmp_path), False, 1, 10).exchange(1, {"weight": weight})
    found = []
    for rounds in (0, 1, 2, 1):
        KeptStates(torch, str(tmp_path), True, 1, 10, rounds=rounds).exchange(1, {"weight": weight})
        found.append(weight.detach() - exact)
    plain, one, two, again = found
    assert not plain.any()
    assert torch.equal(one, again)
    assert 0 < (one == two).sum() < 64  # up or down
    assert torch.allclose(one.abs() / exact, torch.tensor(8 * 2.0**-23), rtol=0.1)


def test_the_sign_of_a_gradient_that_is_noise_makes_no_difference(tmp_path: Path) -> None:
    """Adam's first step moves its element as far as all others, up or down."""
    begin = StepState(0, {"Adam: parameter 0": 1}, {"Adam: parameter 0": (0.0,) * BUCKETS})
    one, same, flipped = (first_step_of_adam(e, tmp_path) for e in (1e-6, 2e-6, -1e-6))
    noise = noise_of([begin, one], [begin, same], restored=[1])
    bare = replace(flipped, updates={})
    without = agreement([begin, one], [begin, bare], noise, {}, 1, restored=[1]).found
    assert without is not None
    assert without.name == "Adam: parameter 0"
    assert agreement([begin, one], [begin, flipped], noise, {}, 1, restored=[1]).found is None
    faster = first_step_of_adam(1e-6, tmp_path, rate=1.5e-3)
    found = agreement([begin, one], [begin, faster], noise, {}, 1, restored=[1]).found
    assert found is not None
    assert found.error == pytest.approx(0.5, rel=0.1)


def test_another_logged_value_is_a_difference() -> None:
    found = agreement(run(), run(reads=0.1), Noise(), EPSILONS).found
    assert found is not None
    assert found.what == "read"


def logging(*reads: float) -> list[StepState]:
    return [replace(state, reads=reads) for state in run()]


def test_values_that_are_logged_at_other_times_are_not_compared() -> None:
    later = [replace(s, reads=(1.0,) * 6 if s.unit % 6 == 0 else ()) for s in run()]
    found = agreement(run(), later, Noise(), EPSILONS)
    assert (found.exact, found.reads, found.found) == (True, None, None)


def test_values_that_are_never_read_are_missed() -> None:
    every_fourth = [replace(s, reads=s.reads if s.unit % 4 else ()) for s in run()]
    for other in (logging(), every_fourth):
        found = agreement(run(), other, Noise(), EPSILONS).found
        assert found is not None
        assert (found.what, found.unit) == ("reads", 0)
    assert agreement(run(), every_fourth, Noise(), EPSILONS, sums=True).found is None


def test_where_sums_are_read_in_place_of_values_no_value_is_compared() -> None:
    eager = logging(0.0, 2.5, 1.5)
    summed = agreement(eager, logging(1.5, 4.0), Noise(), EPSILONS, sums=True)
    assert (summed.exact, summed.reads, summed.found) == (True, None, None)


def test_values_of_steps_between_two_that_both_runs_have_are_compared() -> None:
    """A patch of a GAN's whole step is compared once for the updates of both optimizers."""
    halves = [replace(state, reads=(float(state.unit),), fetched=()) for state in run()]
    for off in (0.0, 0.5):
        both = [replace(s, reads=(s.unit - 1.0 + off, *s.reads)) for s in halves[2::2]]
        both.insert(0, halves[0])
        found = agreement(halves, both, Noise(), EPSILONS)
        assert found.reads == COMPARED + 1
        assert (found.found is None) is (off == 0.0)


def test_other_batches_and_another_beginning_are_seen_before_anything_else() -> None:
    shifted = [StepState(s.unit, s.digests, s.sketches, fetched=(s.unit + 1,)) for s in run()]
    found = first_inequality(run(), shifted)
    assert found is not None
    assert found.what == "batch"
    begun = first_inequality(run(), run()[1:])
    assert begun is not None
    assert begun.what == "initial"


def test_a_run_that_ends_early_does_not_agree() -> None:
    found = agreement(run(), run()[:30], Noise(), EPSILONS).found
    assert found is not None
    assert found.what == "steps"


def test_a_missing_tensor_is_a_difference() -> None:
    first, *rest = run()
    other = [StepState(s.unit, {}, {}, s.reads, s.inputs, s.fetched) for s in rest]
    found = agreement(run(), [first, *other], Noise(), EPSILONS).found
    assert found is not None
    assert (found.what, found.name, found.error) == ("state", "weight", math.inf)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_only_zeros_may_be_there_in_one_run_alone(value: float) -> None:
    """A fused optimizer makes its state in a step that a GradScaler leaves out."""
    begin, first, *rest = run()
    state = (value, *[0.0] * (BUCKETS - 1))
    more = replace(
        first,
        digests={**first.digests, "AdamW: step of weight": 5},
        sketches={**first.sketches, "AdamW: step of weight": state},
    )
    found = agreement(run(), [begin, more, *rest], Noise(), EPSILONS).found
    assert (found is None) == (value == 0.0)


def digest(tensor: torch.Tensor) -> int:
    return Digests(torch).digests([tensor])[0]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(1000.0).reshape(10, 100),
        torch.arange(9, dtype=torch.bfloat16),
        torch.tensor(3),
        torch.tensor([True, False]),
        torch.zeros(3, dtype=torch.complex64),
        torch.empty(0),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_equal_bits_have_equal_digests(tensor: torch.Tensor) -> None:
    assert digest(tensor) == digest(tensor.clone())
    assert digest(tensor) != digest(tensor.reshape(1, *tensor.shape))


def test_one_other_bit_is_another_digest() -> None:
    tensor = torch.randn(5000)
    other = tensor.clone()
    other.view(torch.int32)[4321] ^= 1
    assert digest(tensor) != digest(other)
    assert digest(tensor) != digest(tensor.flip(0))


def test_sketches_are_as_far_apart_as_the_tensors() -> None:
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(3, 7001, generator=generator)
    change = 1e-4 * torch.randn(3, 7001, generator=generator)
    apart = math.dist(*Digests(torch).sketches([tensor, tensor + change]))
    assert apart == pytest.approx(float(change.double().norm()), rel=0.5)


def test_a_perturbed_update_is_larger_in_all_that_it_writes_and_leaves_its_settings() -> None:
    """A fused Adam rounds 1 - beta2 to float32, by which its running means are off."""
    weights = [nn.Parameter(torch.ones(4)) for _ in range(2)]
    optimizers = [torch.optim.Adam([weight], lr=0.1) for weight in weights]
    for weight in weights:
        weight.grad = torch.full((4,), 3.0)
    before = dict(optimizers[1].param_groups[0])
    undo = enlarge_update(optimizers[1], 1e-3)
    for optimizer in optimizers:
        optimizer.step()
    for group, name, value in undo:
        group[name] = value
    plain, enlarged = (o.state[w] for o, w in zip(optimizers, weights))
    for name in ("exp_avg", "exp_avg_sq"):
        assert enlarged[name][0] / plain[name][0] == pytest.approx(1.001, abs=1e-4)
    assert 1 - weights[1][0] > 1 - weights[0][0]
    assert optimizers[1].param_groups[0] == before
