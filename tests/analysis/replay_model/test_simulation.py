"""The queue simulation: known loops, and its closed form against the plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchscope.analysis.replay_model.simulation import (
    BEGIN,
    END,
    LAUNCH,
    SYNC,
    Costs,
    Loop,
    Model,
    Run,
    simulate,
    simulate_plainly,
)

IDEAL = Costs(latency_ns=0.0, dispatch_ns=0.0, wake_ns=0.0)


def loop(
    launches: int, gap_us: float, work_us: float, between_us: float, *, sync: bool = False
) -> Loop:
    """One iteration: host work, BEGIN, equal launches, perhaps a synchronization, END."""
    inner = [SYNC] * sync
    kind = np.array([BEGIN, *[LAUNCH] * launches, *inner, END])
    gap = np.array([between_us, *[gap_us] * launches, *[0.0] * sync, 0.0]) * 1e3
    work = np.where(kind == LAUNCH, work_us * 1e3, 0.0)
    in_step = kind != BEGIN
    no = np.zeros(len(kind), bool)
    return Loop(kind, gap, np.zeros(len(kind)), work, no, in_step, no, no)


def typical(run: Run) -> tuple[float, float]:
    return float(np.median(run.iteration)), float(np.median(run.step))


def test_a_busy_step_can_sit_in_an_iteration_that_waits_for_the_host() -> None:
    # 300 kernels of 10 us launched every 9 us, and 1 ms of host work between steps.
    run = simulate(loop(300, 9, 10, 1000), 30, IDEAL)
    iteration, step = typical(run)
    assert step == pytest.approx(3.0, abs=0.02)
    assert iteration == pytest.approx(3.7, abs=0.02)
    model = Model(loop(300, 9, 10, 1000), IDEAL, 30, iteration)
    assert model.replayed_ms(3.0, 60) == pytest.approx(3.0, abs=0.05)


def test_a_host_bound_loop_takes_the_hosts_time() -> None:
    iteration, _ = typical(simulate(loop(100, 10, 2, 0), 10, IDEAL))
    assert iteration == pytest.approx(1.0)


def test_a_gpu_bound_loop_takes_the_gpus_time_and_fills_the_queue() -> None:
    run = simulate(loop(100, 2, 10, 0), 60, IDEAL)
    assert typical(run)[0] == pytest.approx(1.0)
    # Once 1,000 launches wait, the host is held to the GPU's pace.
    host_iteration = run.host[1:] + run.host_between
    assert host_iteration[0] == pytest.approx(0.2)
    assert host_iteration[-1] == pytest.approx(1.0)


def test_without_its_synchronization_host_and_gpu_work_side_by_side() -> None:
    synced = loop(100, 5, 6, 300, sync=True)
    # The GPU starts with the first launch (5 us) and is through after 100 kernels of 6 us.
    assert typical(simulate(synced, 10, IDEAL))[0] == pytest.approx(0.3 + 0.005 + 0.6)
    free = typical(simulate(synced.without_waits(), 10, IDEAL))[0]
    assert free == pytest.approx(0.8)


def test_taking_out_the_waits_keeps_the_hosts_own_time() -> None:
    synced = loop(10, 5, 1, 30, sync=True)
    assert synced.without_waits().gap_ns.sum() == pytest.approx(synced.gap_ns.sum())


def test_a_replay_runs_beside_the_hosts_work_between_steps() -> None:
    model = Model(loop(100, 10, 2, 500), IDEAL, 10, 1.5)
    assert model.replayed_ms(0.3, 20) == pytest.approx(0.52, abs=0.001)


def test_pieces_of_a_step_keep_its_synchronization() -> None:
    model = Model(loop(100, 5, 50, 1000, sync=True), IDEAL, 30, 6.0)
    assert model.replayed_ms(5.0, 40) == pytest.approx(5.0, abs=0.01)
    assert model.in_pieces_ms(5.0, 0) == pytest.approx(6.04, abs=0.01)


def test_pieces_of_a_step_keep_the_hosts_pause_and_wait_for_it_where_it_waits() -> None:
    ahead, behind = loop(100, 5, 20, 0), loop(100, 5, 20, 0, sync=True)
    for one in (ahead, behind):
        one.gap_ns[-1] = one.kept_ns[-1] = 3e6  # behind the last launch
    # 2 ms of the GPU beside the pause, or before it.
    assert Model(ahead, IDEAL, 30, 3.5).in_pieces_ms(2.0, 0) == pytest.approx(3.04, abs=0.01)
    assert Model(behind, IDEAL, 30, 5.0).in_pieces_ms(2.0, 0) == pytest.approx(5.04, abs=0.01)


def test_a_piece_of_few_launches_stays_eager() -> None:
    one = loop(4, 3, 1, 100)
    assert Model(one, IDEAL, 30, 0.112).in_pieces_ms(0.004, 0) == pytest.approx(0.112, abs=0.002)


def test_input_copies_cost_host_and_device_time() -> None:
    model = Model(loop(100, 10, 2, 0), IDEAL, 10, 1.0)
    bare = model.replayed_ms(1.0, 20)
    copied = model.replayed_ms(1.0, 20, 2, 2_000_000)
    assert copied - bare == pytest.approx(0.004, abs=0.0005)


def uploading(copies: int) -> Loop:
    """300 us of host work, copies to the device that are waited for, then 100 launches."""
    plain = loop(100, 5, 6, 0)
    kind = np.concatenate(([LAUNCH, SYNC] * copies, plain.kind))
    gap = np.concatenate(([300e3 / copies, 0.0] * copies, plain.gap_ns))
    return Loop(
        kind,
        gap,
        np.zeros(len(kind)),
        np.concatenate(([1e3, 0.0] * copies, plain.work_ns)),
        np.zeros(len(kind), bool),
        np.concatenate((np.zeros(2 * copies, bool), plain.in_step)),
        np.zeros(len(kind), bool),
        np.concatenate(([True, False] * copies, np.zeros(102, bool))),
    )


def test_the_host_does_not_wait_for_small_copies_of_inputs_into_a_graph() -> None:
    model = Model(uploading(2), IDEAL, 10, 0.9)
    # The first copy waits for the replay; the host's other 150 us come on top.
    as_now = model.replayed_ms(0.6, 20)
    assert as_now == pytest.approx(0.6 + 0.001 + 0.15 + 0.001 + 0.02, abs=0.001)
    # Of two copies, the first still waits.
    one = model.replayed_ms(0.6, 20, moved_inputs=1)
    assert one == pytest.approx(as_now - 0.001, abs=0.0005)
    # None waits: the GPU's 0.6 ms and its two copies hide the host's 0.3.
    assert model.replayed_ms(0.6, 20, moved_inputs=2) == pytest.approx(0.602, abs=0.001)


@pytest.mark.parametrize("in_step", [False, True])
def test_a_large_input_from_the_host_still_takes_its_time(in_step: bool) -> None:
    now = uploading(1)
    large = replace(now, work_ns=np.where(now.upload, 5e6, now.work_ns))
    if in_step:  # the step begins in front of it
        large = large.chosen(np.array([2, 0, 1, *range(3, len(now.kind))]))
        large = replace(large, in_step=large.kind != BEGIN)
    model = Model(large, IDEAL, 10, 6.0)
    replayed = model.replayed_ms(1.0, 20, input_tensors=1, input_bytes=256_000_000, moved_inputs=1)
    # Five ms over the bus, not the 0.13 that such a copy takes on the device; and not both.
    assert replayed == pytest.approx(6.0, abs=0.01)


def test_the_hosts_time_in_front_of_a_replaced_copy_stays() -> None:
    model = Model(uploading(1), IDEAL, 10, 0.9)
    assert model.replayed_ms(0.1, 20, moved_inputs=1) == pytest.approx(0.32, abs=0.002)


def test_what_follows_a_captured_backward_stays_as_it_is() -> None:
    whole = loop(100, 10, 2, 0)
    tail = np.zeros(102, bool)
    tail[81:101] = True
    kept = replace(whole, behind_backward=tail)
    model = Model(kept, IDEAL, 10, 1.0)
    assert model.replayed_ms(0.16, 20) == pytest.approx(0.02, abs=0.16)
    assert model.replayed_ms(0.1, 20, keeps_rest=True) == pytest.approx(0.22)


times = st.lists(
    st.tuples(st.floats(0, 20), st.floats(0, 30), st.booleans()), min_size=1, max_size=40
)


@settings(deadline=None)  # machines that run tests are shared
@given(times, st.integers(1, 6), st.floats(0, 5), st.floats(0, 3))
def test_the_closed_form_agrees_with_the_simulation_of_every_event(
    of: list[tuple[float, float, bool]], repeats: int, latency: float, dispatch: float
) -> None:
    kind = np.array([BEGIN, *[LAUNCH if launch else BEGIN for _, _, launch in of], END])
    gap = np.array([0.0, *[gap for gap, _, _ in of], 1.0])
    work = np.where(kind == LAUNCH, np.array([0.0, *[work for _, work, _ in of], 0.0]), 0.0)
    no = np.zeros(len(kind), bool)
    one = Loop(kind, gap, np.zeros(len(kind)), work, no, ~no, no, no)
    costs = Costs(latency, dispatch, 0.0)
    unrolled = one.chosen(np.tile(np.arange(len(kind)), repeats))
    _, gpu = simulate_plainly(unrolled, costs)
    run = simulate(one, repeats, costs)
    ends = gpu[unrolled.kind[unrolled.kind != LAUNCH] == END] / 1e6
    np.testing.assert_allclose(run.iteration, np.diff(ends), atol=1e-9)


@settings(deadline=None)  # machines that run tests are shared
@given(times, st.integers(1, 5))
def test_a_short_queue_is_never_overfilled(of: list[tuple[float, float, bool]], limit: int) -> None:
    # A mark behind each launch.
    kind = np.tile([LAUNCH, BEGIN], 4 * len(of))
    gap, work = (np.array([[row[i], 0.0] for row in of] * 4).ravel() for i in range(2))
    no = np.zeros(len(gap), bool)
    host, gpu = simulate_plainly(
        Loop(kind, gap, np.zeros(len(kind)), work, no, ~no, no, no),
        Costs(0.0, 0.0, 0.0, queue_limit=limit),
    )
    unfinished = [(gpu[:row] > host[row] + 1e-9).sum() for row in range(len(host))]
    assert max(unfinished) < limit or max(unfinished) == 0
